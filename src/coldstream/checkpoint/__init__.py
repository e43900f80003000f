"""A learner on disk: immutable files, and a manifest that is renamed into place last.

    birds/
      manifest.json               what the learner is, and which files make it up
      state-<n>-<token>.safetensors   weights, optimiser, indexes of the buffers
      rows-<n>-<token>.bin        packed examples, appended to and never rewritten as a whole
      lock                        only while a process is writing: which one

A crash at any instant leaves the last manifest and all the files that it names. Files are JSON, safetensors
and raw bytes, each with its length and checksum: loading runs no code, fetches nothing, opens no file outside the
folder, and detects truncated and changed files.

`plan` locks the folder and captures the state of one moment, at a cost that hardly grows with the buffer.
`Plan.write` writes it, possibly in another thread while the learner continues. One process at a time writes to a
folder; another one gets an error. Reading needs no lock: it gets the checkpoint before or after, never a mixture.
"""

from coldstream.checkpoint.files import CheckpointError, make_folder, sync_folder, write_atomically
from coldstream.checkpoint.folder import Plan, Stored, plan, read, verify
from coldstream.checkpoint.linking import link
from coldstream.checkpoint.lock import FolderLock, hold, wait_for_threads
from coldstream.checkpoint.manifest import (
    MANIFEST,
    Manifest,
    Segment,
    differences,
    environment,
    read_manifest,
)
from coldstream.checkpoint.saving import Saving
from coldstream.checkpoint.segments import check_index, read_rows

__all__ = [
    "MANIFEST",
    "CheckpointError",
    "FolderLock",
    "Manifest",
    "Plan",
    "Saving",
    "Segment",
    "Stored",
    "check_index",
    "differences",
    "environment",
    "hold",
    "link",
    "make_folder",
    "plan",
    "read",
    "read_manifest",
    "read_rows",
    "sync_folder",
    "verify",
    "wait_for_threads",
    "write_atomically",
]
