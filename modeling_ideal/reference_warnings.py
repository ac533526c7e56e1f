"""What a user should know of the verdicts with a reference set."""

from typing import Any

from .references_file import FORMAT

FEW_TILED_PICTURES = 8  # normal ones; with fewer, the false-alarm rate in tiles was far from the requested one


def reference_warnings(references: Any) -> list[str]:
    """One sentence for each thing to beware of with an `IdealReferences`."""
    found = []
    if references.calibration is None:
        reason = "the references are not calibrated"
        if not references.num_normal and references.mask_source == "estimated":
            reason = "abnormal references alone, without masks, give no threshold"
        found.append(f"{reason}: images are judged by the default threshold of 0.5, which fits no product")
    elif references.calibration.warning:
        found.append(references.calibration.warning)
    if references.calibration is not None and not references.num_normal:
        found.append(
            "there is no normal reference: what surrounds the marked defects stands for it, and good parts that look "
            "otherwise will be called anomalous, so add a photograph of a good part"
        )
    pictures = 0 if references.scores is None or not references.scores.several_tiles else references.scores.num_normal
    if 0 < pictures < FEW_TILED_PICTURES:
        found.append(
            f"the threshold for tiles rests on the tiles of {pictures} good picture{'' if pictures == 1 else 's'} "
            "alone: far more good parts than requested may be called anomalous, so try some before you rely on it"
        )
    if references.mask_source == "estimated":
        found.append(
            "the defects in the abnormal references are not marked: the patches that deviate most are taken for them"
        )
    if references.calibration is not None and references.file_format != FORMAT:
        found.append(
            "the references are of an earlier release, which did not store the settings that their threshold is "
            "for: encode them again, unless the settings of the model and its processor are still the same"
        )
    return found
