"""Disks that stop taking anything: one that is full, one that is read-only, a directory without permission, one that stalls.

    with Full() as disk, Process(disk.command([MUSTER, "scheduler"]), {..., "MS_RECOVERY_PATH": disk.path}) as scheduler:
        disk.breaks()

The first two are file systems in memory, the last is one on a loop device, each in a mount namespace of their own, into which `command` leads a program. Where a
machine allows no such namespace, the test that asks for one is skipped, with what the machine said.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from cluster import Process, command_line
from launch import until
from networks import not_tested

SIZE = "64m"
# Root may read and write whatever the modes of files say; so it becomes somebody else.
NOBODY = 65534
LIMIT = 30


class Disk:
    """`path` is the directory; `words` are those in which the system and the library tell of the trouble."""

    words = ()

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="muster-disk-"))

    def command(self, program):
        """What runs a program where the disk is."""
        return command_line(program)

    def breaks(self):
        raise NotImplementedError

    def is_mended(self):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)


class Mounted(Disk):
    """`MOUNT` makes the file system, in a shell to which "$1" is the path and "$2" a file beside it."""

    MOUNT = f'mount -t tmpfs -o size={SIZE},mode=700 tmpfs "$1"'

    def __init__(self):
        super().__init__()
        self.image = self.path.with_suffix(".image")
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        stays = f"{self.MOUNT} && echo mounted && exec sleep 600"
        unshare = ["unshare", "--mount", *as_root, "--propagation=private", "sh", "-c", stays, "sh", self.path, self.image]
        self.holder = Process(unshare)

    def command(self, program):
        whose = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.holder.pid}", "--mount", *whose, "--", *command_line(program)]

    def sh(self, line, *words):
        subprocess.run(self.command(["sh", "-ec", line, "sh", self.path, *words]), check=True, timeout=LIMIT)

    def __enter__(self):
        try:
            until(lambda: self.holder.returncode is not None or "mounted" in self.holder.stdout, LIMIT, "a mounted disk")
            # A container may forbid mount namespaces or disks of one's own, and no such file system can be had without.
            if self.holder.returncode is not None:
                not_tested(f"this machine allows no file system of the test's own: {self.holder.stderr.strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.holder.close()
        super().__exit__()
        self.image.unlink(missing_ok=True)


class Full(Mounted):
    words = ("No space left on device", "expected free space")

    def breaks(self):
        self.sh('! dd if=/dev/zero of="$1/filler" bs=4096 2>/dev/null')

    def is_mended(self):
        self.sh('rm "$1/filler"')


class ReadOnly(Mounted):
    """Like a disk that is mounted read-only over a writable one: a process with a file open there may go on writing to it."""

    words = ("Read-only file system", "expected a recovery path (MS_RECOVERY_PATH) on a file system that can be written to")

    def __init__(self):
        super().__init__()
        self.beside = pathlib.Path(tempfile.mkdtemp(prefix="muster-disk-"))

    def breaks(self):
        # Beside it first: the system refuses this where a file is being written, and the scheduler may make one at any time.
        self.sh('mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && mount --bind "$2" "$1"', self.beside)

    def is_mended(self):
        self.sh('umount "$1"')

    def __exit__(self, *_):
        super().__exit__()
        self.beside.rmdir()


class Forbidden(Disk):
    """A process that has a file open there may go on writing to it, too."""

    words = ("Permission denied", "expected a recovery path (MS_RECOVERY_PATH) that this process's user owns")

    def __init__(self):
        super().__init__()
        if os.geteuid() == 0:
            os.chown(self.path, NOBODY, NOBODY)

    def command(self, program):
        other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        return [*(other if os.geteuid() == 0 else []), *command_line(program)]

    def breaks(self):
        self.path.chmod(0)

    def is_mended(self):
        self.path.chmod(0o700)

    def __exit__(self, *_):
        self.is_mended()
        super().__exit__()


class Frozen(Mounted):
    """A file system on a disk of its own that holds up every writer until it is mended: not even a signal ends that."""

    MOUNT = f'truncate -s {SIZE} "$2" && mkfs.ext4 -q "$2" && mount -o loop "$2" "$1"'

    def breaks(self):
        self.sh('fsfreeze --freeze "$1"')

    def is_mended(self):
        self.sh('fsfreeze --unfreeze "$1"')


DISKS = {"full": Full, "read-only": ReadOnly, "forbidden": Forbidden}
