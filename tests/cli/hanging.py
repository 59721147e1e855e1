"""A plugin that breaks a training of two processes: the second is killed, the first outlives even SIGTERM."""

import os
import signal
import time

if os.environ.get("WORLD_SIZE") == "2":
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
