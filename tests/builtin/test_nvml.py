"""CUDA GPUs through a management library that is made here: counted, named and measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap

import pytest

from rlinf_core.builtin import nvml
from rlinf_core.builtin.accelerators import Cuda
from rlinf_core.devices import visible

LIBRARY = r"""
#include <stdio.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { const char *uuid; unsigned long long total; int parent; } device_t;

static const device_t devices[] = { DEVICES };
static const unsigned number = sizeof devices / sizeof *devices;
static int running = 0;

static const device_t *nth(int parent, unsigned index) {
    for (unsigned i = 0; i < number; i++)
        if (devices[i].parent == parent && index-- == 0) return &devices[i];
    return NULL;
}
int nvmlInit_v2(void) { running += 1; return STATUS; }
int nvmlShutdown(void) { running -= 1; return 0; }
int leaked(void) { return running; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 0;
    while (nth(-1, *count)) *count += 1;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const device_t **out) {
    *out = nth(-1, index);
    return *out && (*out)->uuid ? 0 : 15;
}
int nvmlDeviceGetUUID(const device_t *device, char *name, unsigned length) {
    if (strlen(device->uuid) >= length) return 7;
    strcpy(name, device->uuid);
    return 0;
}
int nvmlDeviceGetMemoryInfo(const device_t *device, memory_t *memory) {
    memory->total = device->total;
    return device->total ? 0 : 4;
}
#ifndef OLD
int nvmlDeviceGetMaxMigDeviceCount(const device_t *device, unsigned *count) {
    *count = 7;
    return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(const device_t *device, unsigned index,
                                        const device_t **out) {
    *out = nth((int)(device - devices), index);
    return *out ? 0 : 6;
}
#endif
"""

TWO = [("GPU-aaaa-1", 80, -1), ("GPU-aabb-2", 80, -1)]
ODD = [("GPU-aaaa-1", 24, -1), ("GPU-bbbb-2", 80, -1)]
SPLIT = [
    ("GPU-aaaa-1", 80, -1), ("GPU-bbbb-2", 80, -1), ("MIG-c-1", 20, 1), ("MIG-d-2", 40, 1),
]  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Return a function that installs a driver with some devices, and says whether it was left."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "DRIVER_FOLDER", tmp_path / "nowhere")

    def install(devices, status=0, *flags):
        rows = ", ".join(
            "{" + (f'"{uuid}"' if uuid else "NULL") + f", {gib}ULL << 30, {parent}" + "}"
            for uuid, gib, parent in devices
        )
        source, library = tmp_path / "nvml.c", tmp_path / f"nvml{len(list(tmp_path.iterdir()))}.so"
        source.write_text(LIBRARY)
        options = [f"-DDEVICES={rows}", f"-DSTATUS={status}", *flags]
        command = ["cc", "-shared", "-fPIC", "-w", "-o", str(library), *options, str(source)]
        subprocess.run(command, check=True)
        monkeypatch.setattr(nvml, "LIBRARY", str(library))
        return library

    return install


def seen() -> list[int | None]:
    """Return the memory of what a process would see, in GiB."""
    cuda = Cuda()
    sizes = [cuda.memory(index) for index in range(cuda.count())]
    assert cuda.memory(len(sizes)) is None
    assert cuda.memory(-1) is None
    return [size and size >> 30 for size in sizes]


def test_gpus_are_counted_and_measured_and_the_library_is_left_again(driver):
    library = driver(TWO)
    assert seen() == [80, 80]
    assert nvml.ctypes.CDLL(str(library)).leaked() == 0
    assert [gpu.uuid for gpu in nvml.gpus()] == ["GPU-aaaa-1", "GPU-aabb-2"]


@pytest.mark.parametrize(
    ("shown", "gib"),
    [
        ("", []),
        ("-1", []),
        ("1", [80]),
        ("1,0", [80, 24]),
        ("0,7,1", [24]),
        ("1,1", []),
        ("GPU-bbbb-2", [80]),
        ("GPU-b", [80]),
        ("GPU-", []),  # of which of the two is this?
        ("GPU-b,GPU-a", [80, 24]),
        ("nothing", []),
    ],
)
def test_the_visibility_variable_takes_numbers_and_names(driver, monkeypatch, shown, gib):
    driver(ODD)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert seen() == gib


def test_memory_is_unknown_where_cuda_may_number_gpus_of_several_sizes_otherwise(
    driver, monkeypatch
):
    driver(ODD)
    assert seen() == [None, None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert seen() == [None, None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    assert seen() == [80, 24]


@pytest.mark.parametrize(
    ("shown", "gib"),
    [
        (None, [20]),  # a process sees one instance, and then no whole GPU
        ("0", [80]),
        ("1", [20]),
        ("MIG-d-2", [40]),
        ("MIG-d-2,MIG-c-1", [40]),
        ("GPU-b", [20]),
        ("2", []),  # instances have no numbers
    ],
)
def test_of_a_gpu_that_is_split_a_process_sees_one_instance(driver, monkeypatch, shown, gib):
    driver(SPLIT)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert seen() == gib


def test_a_driver_that_knows_no_splitting(driver):
    driver(TWO, 0, "-DOLD")
    assert seen() == [80, 80]


def test_what_the_driver_does_not_tell_is_unknown(driver):
    driver([("GPU-a", 0, -1), (None, 80, -1)])
    assert seen() == [None, None]


def test_without_a_library_the_kernels_driver_is_asked(driver, tmp_path, monkeypatch):
    folder = tmp_path / "gpus"
    for number, uuid in enumerate(("GPU-one", "GPU-two")):
        (folder / f"0000:0{number}:00.0").mkdir(parents=True)
        text = f"Model: \t\t NVIDIA A100\nGPU UUID: \t {uuid}\nBus Type: PCIe\n"
        (folder / f"0000:0{number}:00.0" / "information").write_text(text)
    monkeypatch.setattr(nvml, "DRIVER_FOLDER", folder)
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml-of-nobody.so")
    assert seen() == [None, None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-two")
    assert seen() == [None]
    driver(TWO, status=9)  # it is there, and its driver does not run
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert seen() == [None, None]


def test_a_library_that_is_something_else_raises_nothing(driver, monkeypatch):
    monkeypatch.setattr(nvml, "LIBRARY", "libm.so.6")
    assert Cuda().count() == 0


def test_asking_starts_no_cuda_and_imports_no_torch(driver):
    library = driver(TWO)
    code = f"""
        import os, sys
        from rlinf_core.builtin import nvml
        from rlinf_core.builtin.accelerators import Cuda
        nvml.LIBRARY = {str(library)!r}
        cuda = Cuda()
        assert (cuda.count(), cuda.memory(1)) == (2, 80 << 30)
        assert "torch" not in sys.modules
        assert "libcuda" not in open("/proc/self/maps").read()
        if os.fork() == 0:
            os._exit(Cuda().memory(0) != 80 << 30)
        assert os.wait()[1] == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.parametrize(
    ("text", "names", "count", "numbers"),
    [
        (None, ["a", "b"], None, [0, 1]),
        (None, ["a", "b", "c"], 2, [0, 1]),
        ("c,0", ["a", "b", "c"], 2, [2, 0]),
        ("2", ["a", "b", "c"], 2, []),
        (" 1 , 0 ", ["a", "b"], None, [1, 0]),
        ("0,,1", ["a", "b"], None, [0]),
        ("0", [], None, []),
        ("", [""], None, []),
    ],
)
def test_visible(text, names, count, numbers):
    assert visible(text, names, count) == numbers
