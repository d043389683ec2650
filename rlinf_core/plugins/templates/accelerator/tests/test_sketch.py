from rlinf_plugin_sketch import accelerator
from rlinf_plugin_sketch.accelerator import SketchAccelerator


def test_devices_are_counted_as_far_as_they_are_shown(tmp_path, monkeypatch):
    for name in ("sketch0", "sketch1", "sketch2", "other0"):
        (tmp_path / name).touch()
    monkeypatch.setattr(accelerator, "DEVICES", tmp_path)
    monkeypatch.delenv("VISIBLE_DEVICES", raising=False)
    assert SketchAccelerator().count() == 3
    monkeypatch.setenv("VISIBLE_DEVICES", "0,2,7")
    assert SketchAccelerator().count() == 2
