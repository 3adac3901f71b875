"""The names of the keys of a store in etcd, and their order.

    schema  epoch  leader  head  pruned  imaged  indexed     one value each
    log/REVISION                                             a batch, or where its parts are
    part/REVISION/TAG/N                                      parts of a batch too large for one request
    image/REVISION, piece/REVISION/TAG/N                     header and pieces of an image
    index/BUCKET/REVISION/N                                  the batches of each subject, up to a revision
    history/JOB, large/JOB/TAG/N                             records of ended jobs, the newest first
    number/NUMBER                                            the id of an ended job, by its number
    quarantine/...                                           damaged records, under the key they had

Revisions have twenty digits, so that the order of keys is the order of numbers. etcd can limit a range only from its
beginning, and reads all of it to find its end: so the records of jobs, which are read newest first, have the
complement of their ids as keys.
"""

from __future__ import annotations

import zlib

BUCKETS = 16


class EtcdKeys:
    """Keys under one prefix. Several clusters may share one etcd under different ones."""

    def __init__(self, prefix: str) -> None:
        self._root = prefix.strip("/").encode() + b"/"
        self.schema = self._root + b"schema"
        self.epoch = self._root + b"epoch"
        self.leader = self._root + b"leader"
        self.head = self._root + b"head"
        self.pruned = self._root + b"pruned"
        self.imaged = self._root + b"imaged"
        self.indexed = self._root + b"indexed"
        self.images = self._root + b"image/"
        self.pieces = self._root + b"piece/"
        self.quarantined = self._root + b"quarantine/"

    def log(self, revision: int) -> bytes:
        return self._root + b"log/%020d" % revision

    @property
    def log_end(self) -> bytes:
        return after_prefix(self._root + b"log/")

    def revision_of(self, key: bytes) -> int:
        """The revision in a key that ends with it."""
        return int(key.rpartition(b"/")[2])

    def part(self, revision: int, tag: str, at: int) -> bytes:
        return self._root + b"part/%020d/%s/%06d" % (revision, tag.encode(), at)

    def parts_up_to(self, revision: int) -> tuple[bytes, bytes]:
        return self._root + b"part/", self._root + b"part/%020d/" % (revision + 1)

    def image(self, revision: int) -> bytes:
        return self.images + b"%020d" % revision

    def piece(self, revision: int, tag: str, at: int) -> bytes:
        return self.pieces_of(revision, tag) + b"%06d" % at

    def pieces_of(self, revision: int, tag: str) -> bytes:
        return self.pieces + b"%020d/%s/" % (revision, tag.encode())

    def index(self, bucket: int, revision: int, at: int = 0) -> bytes:
        return self._root + b"index/%02x/%020d/%06d" % (bucket, revision, at)

    def index_end(self, bucket: int) -> bytes:
        return after_prefix(self._root + b"index/%02x/" % bucket)

    def history(self, job: str) -> bytes:
        return self._root + b"history/" + _newest_first(job)

    def job_of(self, key: bytes) -> str:
        """The job whose record has this key."""
        begin = len(self._root) + len(b"history/")
        return bytes(255 - byte for byte in key[begin:-1]).decode()

    def history_begin(self, prefix: str) -> bytes:
        """The first key of the jobs whose ids start with `prefix`."""
        return self.history(prefix)[:-1]

    def large(self, job: str, tag: str, at: int) -> bytes:
        return self._root + b"large/" + _newest_first(job) + b"/%s/%06d" % (tag.encode(), at)

    def larges(self, first: bytes, last: bytes) -> tuple[bytes, bytes]:
        """The parts of the records from one key of history to another."""
        begin, end = (
            self._root + b"large/" + key.removeprefix(self._root + b"history/") for key in (first, last)
        )
        return begin, after_prefix(end + b"/")

    def number(self, number: int) -> bytes:
        return self._root + b"number/%020d" % number

    def quarantine(self, key: bytes) -> bytes:
        return self.quarantined + key.removeprefix(self._root)


def _newest_first(job: str) -> bytes:
    """A key that sorts in reverse; its last byte sorts an id after longer ones that start with it."""
    return bytes(255 - byte for byte in job.encode()) + b"\xff"


def bucket_of(subject: str) -> int:
    """The bucket of the index for a subject; the same in every process, unlike `hash`."""
    return zlib.crc32(subject.encode()) % BUCKETS


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that start with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))
