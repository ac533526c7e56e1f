"""The look of the page, on a desk and on a telephone. No font and no script comes from elsewhere."""

INTRODUCTION = """
<h1>IDEAL</h1>
<p>Show a few photographs of good parts and one or a few of defective ones; then see which new parts are bad, and
where. Nothing is trained. Other visitors do not see your pictures.</p>
"""

STYLE = """
.gradio-container { padding-bottom: 90px !important }
.over { color: #c62828 } .under { color: #16803d }
.dark .over { color: #ff8a80 } .dark .under { color: #6fcf97 }
#references, #summary { min-height: 70px }
.ideal-note { opacity: .75; font-size: 13px }
#messages { position: fixed; left: 0; right: 0; bottom: 0; z-index: 900; pointer-events: none; border: 0 }
.ideal-message { pointer-events: auto; max-width: 860px; margin: 0 auto 10px; padding: 10px 14px; border-radius: 8px;
  background: #fff6e0; color: #3b2f00; border: 1px solid #e5a000; overflow-wrap: anywhere;
  max-height: 40vh; overflow-y: auto }
.ideal-references h2 { font-size: 17px; margin: 18px 0 6px }
.ideal-references .grid { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)) }
.ideal-references figure { margin: 0; min-width: 0 }
.ideal-references figcaption { font-size: 13px; overflow-wrap: anywhere }
.ideal-references img { width: 100%; border-radius: 6px; display: block }
.ideal-references .none { padding: 30px 0; text-align: center; opacity: .6 }
.ideal-references .warning { border-left: 4px solid #e5a000; background: rgba(229, 160, 0, .14); padding: 6px 12px;
  margin: 8px 0 }
.ideal-references svg { max-width: 100%; height: auto }
.ideal-references svg text { fill: currentColor } .ideal-references svg line { stroke: currentColor }
.ideal-counts { font-size: 16px }
.histogram { width: 100%; max-width: 640px; height: auto; display: block; font-size: 12px }
.histogram text { fill: currentColor } .histogram line { stroke: currentColor; opacity: .6 }
.histogram .threshold { stroke-width: 1.5; stroke-dasharray: 4 3; opacity: 1 }
.histogram .normal { fill: #5b9bc8 } .histogram .anomalous { fill: #d0574e }
.ideal-details h3 { font-size: 17px; overflow-wrap: anywhere; margin: 6px 0 }
.ideal-pair { display: flex; flex-wrap: wrap; gap: 10px }
.ideal-pair img { flex: 1 1 240px; min-width: 0; max-width: 560px; width: 100%; border-radius: 6px }
.ideal-message button { float: right; font-size: 20px; line-height: 1; padding: 0 4px; margin-left: 8px }
.ideal-gallery .grid-wrap { min-height: 0 !important; height: auto !important; max-height: 80vh; padding-top: 34px }
.ideal-gallery .grid-container { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)) !important;
  height: auto !important; grid-auto-rows: auto !important }
.ideal-gallery .caption-label { white-space: normal; overflow-wrap: anywhere; max-width: 100% }
.ideal-gallery .thumbnail-lg { display: flex; flex-direction: column; aspect-ratio: auto; height: auto }
.ideal-gallery .thumbnail-lg img { aspect-ratio: 4 / 3; height: auto; min-height: 0 }
.ideal-gallery .caption-label { position: static; border-width: 0 }
.ideal-boxes img { cursor: crosshair; touch-action: manipulation }
@media (max-width: 520px) { .histogram { font-size: 18px } .ideal-references svg text { font-size: 22px } }
"""
