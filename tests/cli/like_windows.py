"""Makes this process as poor as on Windows. Importing it loads the libraries, which need more.

The libraries keep the modules that they have imported; segmeter gets poorer ones. For all, a file that is open can be
neither renamed nor removed, nothing replaces a folder, some names are refused, and nobody may make a link.
"""

# isort: skip_file
import concurrent.futures.process  # noqa: F401
import multiprocessing.resource_tracker  # noqa: F401
import os
import re
import shutil
import signal
import subprocess  # noqa: F401
import sys
import sysconfig
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import filelock  # noqa: F401
import hydra  # noqa: F401
import numba  # noqa: F401
import psutil  # noqa: F401
import pyarrow.parquet  # noqa: F401
import rich.progress  # noqa: F401
import scipy.ndimage  # noqa: F401
import skimage.measure  # noqa: F401

LACKING = {
    os: (
        "O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC WNOHANG chown chroot fchmod fdatasync fork "
        "geteuid getloadavg getpgid getuid killpg lchown mkfifo mknod nice openpty pipe2 posix_fadvise pread pwrite "
        "register_at_fork sched_getaffinity sched_setaffinity sendfile setpgrp setsid statvfs sync sysconf uname"
    ),
    signal: (
        "SIGALRM SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 alarm pause "
        "pthread_kill pthread_sigmask setitimer siginterrupt sigwait"
    ),
}
# A device, a sign that no name may hold, or a dot or space at the end
REFUSED = re.compile(
    r'(?:.*/)?((?:con|prn|aux|nul|com\d|lpt\d)(?:\.[^/]*)?|[^/]*[<>:"\\|?*][^/]*|[^/]*[. ])', re.IGNORECASE
)
LIBRARY, SITE = sysconfig.get_path("stdlib"), "site-packages"


def fsync(handle: int, fsync: Any = os.fsync) -> None:
    """Flush a file that is open for writing, which Windows asks for."""
    flags = next(line for line in Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines() if "flags" in line)
    if int(flags.split()[1], 8) & (os.O_WRONLY | os.O_RDWR) == 0:
        raise OSError(9, "Bad file descriptor")
    fsync(handle)


def of_segmeter() -> bool:
    """Whether segmeter's own code opens a file, rather than a library."""
    frame = sys._getframe(2)
    while frame.f_back and (name := frame.f_code.co_filename).startswith((LIBRARY, "<")) and SITE not in name:
        frame = frame.f_back
    return "/segmeter/" in frame.f_code.co_filename


def is_open(path: str) -> bool:
    """Whether this process has a file open or mapped, or one below a folder."""
    maps = Path("/proc/self/maps").read_text()
    held = [f"{path}/"] if f" {path}/" in maps or f" {path}\n" in maps else []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            held.append(f"{handle.readlink()}/")
    return any(each.startswith(f"{path}/") for each in held)


def refuse(code: int, text: str, path: object) -> NoReturn:
    error = PermissionError(13, text, str(path))
    error.winerror = code  # type: ignore[attr-defined]
    raise error


def like_windows(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and str(given[0]).startswith(("/proc/", "/sys/")) and of_segmeter():
        raise FileNotFoundError(2, "no such file", given[0])
    if event == "os.symlink":
        refuse(1314, "A required privilege is not held by the client", given[1])
    made = given[1] if event == "os.rename" else given[0] if event == "os.mkdir" else None
    if event == "open" and isinstance(given[0], str | Path) and given[2] & os.O_CREAT:
        made = given[0]
    if made is not None and (name := REFUSED.fullmatch(os.fsdecode(made))):
        raise OSError(22, f"Invalid argument: {name[1]}", os.fsdecode(made))
    if event == "os.rename" and Path(os.fsdecode(given[1])).is_dir():
        refuse(5, "Access is denied", given[1])
    if event in ("os.rename", "os.remove", "os.rmdir"):
        for path in given[: 2 if event == "os.rename" else 1]:
            if is_open(str(Path(os.fsdecode(path)).absolute())):
                refuse(32, "The process cannot access the file because another process uses it", path)


def become_windows() -> None:
    """Call it before segmeter is imported."""
    for module, names in LACKING.items():
        poorer = types.ModuleType(module.__name__)
        vars(poorer).update({name: value for name, value in vars(module).items() if name not in names.split()})
        sys.modules[module.__name__] = poorer
    for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios", "tty"):
        sys.modules[name] = None  # type: ignore[assignment]
    sys.modules["os"].fsync = fsync  # type: ignore[attr-defined]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(like_windows)
