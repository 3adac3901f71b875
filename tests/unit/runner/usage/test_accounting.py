"""Counters of cgroups, as v1 and v2 write them."""

from __future__ import annotations

from pathlib import Path

from phalanx.runner.usage.accounting import CgroupCounters, read_counters

MIB = 1 << 20


def a_folder(path: Path, **files: str) -> str:
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return str(path)


def test_v2_has_all_of_it(tmp_path: Path):
    folder = a_folder(
        tmp_path / "v2",
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
        memory__current=f"{300 * MIB}\n",
        memory__peak=f"{500 * MIB}\n",
        memory__stat=f"anon {100 * MIB}\nfile {200 * MIB}\nshmem {50 * MIB}\ninactive_file 1\n",
        io__stat="8:0 rbytes=1000 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=5 wbytes=7\n",
    )
    assert read_counters([folder]) == CgroupCounters(2.5, 150 * MIB, 350 * MIB, 1005, 27)


def test_v1_has_them_in_several_hierarchies(tmp_path: Path):
    memory = a_folder(
        tmp_path / "memory",
        memory__usage_in_bytes=f"{90 * MIB}\n",
        memory__max_usage_in_bytes=f"{120 * MIB}\n",
        memory__stat=f"cache 1\nrss 2\ntotal_cache {40 * MIB}\ntotal_rss 3\ntotal_shmem {10 * MIB}\n",
    )
    cpu = a_folder(tmp_path / "cpuacct", cpuacct__usage="1500000000\n")
    assert read_counters([memory, cpu]) == CgroupCounters(1.5, 60 * MIB, 90 * MIB)


def test_what_is_not_there_or_not_readable_is_not_known(tmp_path: Path):
    odd = a_folder(tmp_path / "odd", cpu__stat="usage_usec many\n", memory__current="max\n")
    assert read_counters([odd, str(tmp_path / "gone")]) == CgroupCounters()
