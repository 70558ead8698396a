"""The service manager of package-test-inside.py: runs the two programs as their units say, and answers what the packages' scripts ask systemctl.

What only a real systemd does (namespaces of files, filters of system calls) is judged by systemd-analyze and not felt by the programs here.
What the programs tell of themselves is what systemctl answers; what the packages want done is written down.
"""
import glob
import grp
import os
import pwd
import shlex
import signal
import socket
import subprocess
import time

SOON = 120
UNITS = "/tmp/units"
ASKED = "/tmp/systemctl"


def fail(what):
    for path in sorted(glob.glob("/tmp/*.stderr") + glob.glob("/var/lib/platform*/logs/*.log")):
        with open(path, errors="replace") as file:
            print(f"--- the end of {path}\n{''.join(file.readlines()[-30:])}")
    raise SystemExit(f"FAILED: {what}")


def run(*command, expect=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **more)
    if done.returncode != expect:
        fail(f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def check(holds, what):
    if not holds:
        fail(what)
    print(f"ok: {what}", flush=True)


def eventually(what, ask):
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.1)
    fail(f"waited {SOON} s in vain for {what}")


def unit(name):
    """The settings of a unit and what a package puts beside it; of those that are given twice the last."""
    lines, path = [], f"/usr/lib/systemd/system/{name}.service"
    for part in [path, *sorted(glob.glob(f"{path}.d/*.conf"))]:
        with open(part) as file:
            lines += [line.strip() for line in file if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def tell(name, state, status=""):
    """What systemctl says of a unit from now on."""
    os.makedirs(UNITS, exist_ok=True)
    for what, text in [("status", status), ("state", state)]:
        with open(f"{UNITS}/{name}.service.{what}.new", "w") as file:
            file.write(f"{text}\n")
        os.rename(f"{UNITS}/{name}.service.{what}.new", f"{UNITS}/{name}.service.{what}")


class Service:
    """A program as its unit has it started."""

    def __init__(self, name):
        self.name, self.unit = name, unit(name)
        user, group = pwd.getpwnam(self.unit["User"]), grp.getgrnam(self.unit["Group"])
        more = [grp.getgrnam(name).gr_gid for name in self.unit.get("SupplementaryGroups", "").split()]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        environment |= dict(word.split("=", 1) for word in self.unit.get("Environment", "").split())
        secrets = self.unit["EnvironmentFile"].removeprefix("-")
        if os.path.exists(secrets):
            with open(secrets) as file:
                environment |= dict(shlex.split(line)[0].split("=", 1) for line in file if "=" in line and not line.startswith("#"))
        notify = f"/run/{name}.notify"
        if os.path.exists(notify):
            os.unlink(notify)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(notify)
        os.chmod(notify, 0o666)
        seconds = int(self.unit["WatchdogSec"].removesuffix("s"))
        environment |= {"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": str(seconds * 1_000_000)}
        tell(name, "activating")
        before, self.said = self.unit.get("ExecStartPre", "").removeprefix("-+"), ""
        if before:
            # As root, and its failure is none of the service.
            own = {"PATH": os.environ["PATH"], "JOIN_LOCAL_PATIENCE": str(SOON)}
            root = {"env": environment | own, "umask": int(self.unit["UMask"], 8), "cwd": self.unit["WorkingDirectory"]}
            self.said = subprocess.run(shlex.split(before), capture_output=True, text=True, timeout=2 * SOON, **root).stderr
            print(self.said, end="", flush=True)
        groups = ",".join(str(gid) for gid in [group.gr_gid, *more])
        confined = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={group.gr_gid}", f"--groups={groups}", "--no-new-privs", "--bounding-set=-all"]
        self.process = subprocess.Popen(
            [*confined, *shlex.split(self.unit["ExecStart"])],
            cwd=self.unit["WorkingDirectory"],
            env=environment,
            umask=int(self.unit["UMask"], 8),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(f"/tmp/{name}.stderr", "ab"),
        )

    def hears(self, line):
        """The next message that has this line, by its names."""
        self.socket.settimeout(SOON)
        while True:
            lines = self.socket.recv(512).decode().splitlines()
            if line in lines:
                return dict(part.split("=", 1) for part in lines)

    def ready(self):
        """Waits until it is; from then on systemctl says what the program told."""
        self.status = self.hears("READY=1").get("STATUS", "")
        tell(self.name, "active", self.status)
        return self

    def reload(self):
        command = shlex.split(self.unit["ExecReload"].replace("$MAINPID", str(self.process.pid)))
        run(*command)
        self.hears("RELOADING=1")
        self.ready()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.hears("STOPPING=1")
        code = self.process.wait(SOON)
        tell(self.name, "inactive")
        check(code == 0, f"{self.name} stops when it is asked to")


def manager():
    """A machine that runs systemd, as the packages' scripts see it: what systemctl is asked to do succeeds and is written down."""
    os.makedirs("/run/systemd/system")
    text = f"""for unit; do :; done
state=$(cat {UNITS}/$unit.state 2>/dev/null || echo inactive)
case " $* " in
# Links of units are made without a manager.
*" --root="*) exec /usr/bin/systemctl "$@" ;;
*" is-active "*) [ $state = active ] ;;
*" --property ActiveState "*) echo $state ;;
*" --property StatusText "*) cat {UNITS}/$unit.status ;;
*" --property User "*) sed -n s/^User=//p /usr/lib/systemd/system/$unit ;;
*" --property Environment "*) cat /usr/lib/systemd/system/$unit.d/*.conf | sed -n s/^Environment=//p ;;
# No start waits for another.
*" --property Job "*) ;;
*) echo "$*" >> {ASKED} ;;
esac"""
    script("/packages/bin/systemctl", text)
    os.environ["PATH"] = f"/packages/bin:{os.environ['PATH']}"


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)


def asked():
    """What systemctl was asked since the last time, reloads apart; there must have been some of these."""
    with open(ASKED) as file:
        lines = file.read().splitlines()
    os.unlink(ASKED)
    reload = "--system daemon-reload"
    check(reload in lines, "systemd reads its units again")
    rest = [line for line in lines if line != reload]
    print(f"and is asked: {rest}", flush=True)
    return rest
