"""The style of a report: on a screen, on a telephone and on paper. No script: a click on a count follows a link."""

STYLE = """
:root { color-scheme: light; --red: #b3261e; --green: #1d6b3a; --amber: #8a5a00; --grey: #5f6368; --line: #dadce0 }
* { box-sizing: border-box }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 1280px; padding: 20px; color: #202124;
  background: #fff }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 18px; margin: 28px 0 10px }
p { margin: 4px 0 } main { margin-top: 12px }
.facts, .note { color: var(--grey); font-size: 13px; overflow-wrap: anywhere }
.warning { border-left: 4px solid var(--amber); background: #fff6e0; padding: 8px 12px; margin: 10px 0;
  overflow-wrap: anywhere }
.target { position: fixed; top: 0 }
.histogram { width: 100%; max-width: 820px; height: auto; display: block; font-size: 12px }
nav { display: grid; grid-template-columns: repeat(4, 1fr); gap: 10px; margin: 16px 0 8px }
@media (max-width: 520px) { nav { grid-template-columns: repeat(2, 1fr) } .histogram { font-size: 20px } }
nav a { border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; color: inherit;
  text-decoration: none }
nav a:hover, nav a:focus-visible { border-color: #1a73e8 }
nav b { display: block; font-size: 24px; line-height: 1.2 }
.anomalous b, .verdict.anomalous { color: var(--red) } .normal b, .verdict.normal { color: var(--green) }
.error b, .verdict.error { color: var(--amber) }
#anomalous:target ~ nav a.anomalous, #normal:target ~ nav a.normal, #error:target ~ nav a.error,
  body:not(:has(.target:target)) nav a.all, #all:target ~ nav a.all
  { border-color: #1a73e8; box-shadow: inset 0 0 0 1px #1a73e8 }
#anomalous:target ~ main .card:not(.anomalous), #normal:target ~ main .card:not(.normal),
  #error:target ~ main .card:not(.error) { display: none }
.histogram text { fill: #3c4043 } .histogram .normal { fill: #5b9bc8 } .histogram .anomalous { fill: #d0574e }
.histogram line { stroke: #9aa0a6 } .histogram .threshold { stroke: #202124; stroke-width: 1.5; stroke-dasharray: 4 3 }
main, .references { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 240px), 1fr)); gap: 14px }
.references { grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); gap: 10px } .references figure { margin: 0 }
.references img { width: 100%; height: auto; border-radius: 6px; display: block }
figcaption { font-size: 13px; color: var(--grey) }
.card { border: 1px solid var(--line); border-radius: 10px; padding: 10px; content-visibility: auto;
  contain-intrinsic-size: auto 420px; min-width: 0 }
.pair { display: block; position: relative; cursor: pointer; border-radius: 6px; overflow: hidden;
  background: #f1f3f4 }
.pair input { position: absolute; opacity: 0; top: 8px; left: 8px }
.pair:has(input:focus-visible) { outline: 3px solid #1a73e8 }
.pair img { width: 100%; height: auto; display: block }
.pair img + img, .pair svg { position: absolute; inset: 0; width: 100%; height: 100% }
.pair svg rect { fill: none; stroke: #fff; stroke-width: 1.5; vector-effect: non-scaling-stroke; paint-order: stroke;
  filter: drop-shadow(0 0 1px #000) }
.pair input:checked ~ .overlay { visibility: hidden }
@media (hover: hover) { .pair:hover .overlay { visibility: hidden } .pair:hover input:checked ~ .overlay
  { visibility: visible } }
.name { font-weight: 600; margin-top: 8px; overflow-wrap: anywhere } .name a { color: inherit }
.verdict { font-weight: 600 } .error-text { overflow-wrap: anywhere; font-size: 13px }
.scale { position: relative; height: 8px; background: #eceff1; border-radius: 4px; margin: 6px 0; overflow: hidden }
.scale i { position: absolute; inset: 0 auto 0 0; background: #5b9bc8 } .anomalous .scale i { background: #d0574e }
.scale u { position: absolute; top: 0; bottom: 0; width: 2px; background: #202124 }
.figures, details { font-size: 13px; color: #3c4043 } summary { cursor: pointer }
ul { margin: 4px 0; padding-left: 20px }
@media print {
  body { padding: 0; max-width: none; font-size: 11px } h1 { font-size: 18px }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  nav a { padding: 4px 8px } nav b { font-size: 16px }
  .histogram { max-width: 520px } main { grid-template-columns: repeat(3, 1fr); gap: 8px }
  .references { grid-template-columns: repeat(10, 1fr); gap: 6px }
  .card { break-inside: avoid; content-visibility: visible; contain-intrinsic-size: none; padding: 6px }
  .figures, details, figcaption, .note, .facts, .error-text { font-size: 10px }
  .pair { display: flex; gap: 4px; background: none } .pair input, .pair svg { display: none }
  .pair img, .pair img + img { position: static; width: calc(50% - 2px); height: auto; visibility: visible }
  details::details-content { content-visibility: visible; height: auto } summary { list-style: none }
  .name a { text-decoration: none } nav a { box-shadow: none !important; border-color: var(--line) !important }
  .screen { display: none }
}
"""
