#!/usr/bin/env python3
"""The part of package-test.sh that runs in its root, as root, in namespaces of its own.

It is the service manager of the two programs: it starts what a unit says, as whom and where the unit says, and waits for READY=1. What only a
real systemd does (namespaces of files, filters of system calls) is judged by systemd-analyze and not felt by the programs here. What the
packages ask of it is written down by a systemctl of the test.
"""
import glob
import grp
import hashlib
import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import time

SOON = 120
PACKAGES = ["platform-mixer", "platform"]
ASKED = "/tmp/systemctl"
POLICY = "/usr/sbin/policy-rc.d"
NEW = sorted(glob.glob("/packages/*.deb"))
OLD = sorted(glob.glob("/packages/old/*.deb"))


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
                environment |= dict(line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#"))
        notify = f"/run/{name}.notify"
        if os.path.exists(notify):
            os.unlink(notify)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(notify)
        os.chmod(notify, 0o666)
        seconds = int(self.unit["WatchdogSec"].removesuffix("s"))
        environment |= {"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": str(seconds * 1_000_000)}
        first = self.unit.get("ExecStartPre", "").removeprefix("-+")
        if first:
            # As root, and its failure is none of the service.
            subprocess.run(shlex.split(first), env=environment | {"PATH": os.environ["PATH"]}, umask=int(self.unit["UMask"], 8), timeout=SOON)
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
        self.hears("READY=1")

    def hears(self, line):
        self.socket.settimeout(SOON)
        while line not in self.socket.recv(512).decode().splitlines():
            pass

    def reload(self):
        command = shlex.split(self.unit["ExecReload"].replace("$MAINPID", str(self.process.pid)))
        run(*command)
        self.hears("RELOADING=1")
        self.hears("READY=1")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.hears("STOPPING=1")
        code = self.process.wait(SOON)
        check(code == 0, f"{self.name} stops when it is asked to")


def version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version} ${db:Status-Abbrev}", package], capture_output=True, text=True)
    return done.stdout.strip()


def install(files, **more):
    return run("dpkg", "--force-confold", "-i", *files, **more)


def manager():
    """A machine that runs systemd, as the packages' scripts see it: whatever systemctl is asked succeeds and is written down."""
    os.makedirs("/run/systemd/system")
    states = "*is-active*) ;; *StatusText*) echo 'serves http://127.0.0.1:8090' ;;"
    # Links of units are made without a manager.
    states += ' --root=*) exec /usr/bin/systemctl "$@" ;;'
    script("/packages/bin/systemctl", f'case "$*" in {states} *) echo "$*" >> {ASKED} ;; esac')
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


def restarts():
    return [f"--system --no-block try-restart {name}.service" for name in PACKAGES]


def start():
    return {name: Service(name) for name in PACKAGES}


def stop(services):
    for name in reversed(PACKAGES):
        services[name].stop()


def say(text):
    run("logger", "-t", "boiler", text)


def shown(text):
    done = subprocess.run(["platform", "logs", "--all", "--since", "1h", "-o", "ndjson"], capture_output=True, text=True)
    return [row for row in map(json.loads, done.stdout.splitlines()) if row["message"] == text]


def see(text):
    """Has the journal an entry until the logs have it: the gear begins at the end of the journal, some time after the start."""

    def ask():
        say(text)
        return shown(text)

    return eventually(f"{text!r} in platform logs", ask)


def journald():
    run("systemd-machine-id-setup")
    os.makedirs("/run/systemd/journal", exist_ok=True)
    # As systemd's own tmpfiles.d has it at the start of a machine.
    os.makedirs("/run/log/journal")
    shutil.chown("/run/log/journal", "root", "systemd-journal")
    os.chmod("/run/log/journal", 0o2755)
    subprocess.Popen(["/usr/lib/systemd/systemd-journald"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually("journald", lambda: os.path.exists("/run/systemd/journal/dev-log"))
    if not os.path.exists("/dev/log"):
        os.symlink("/run/systemd/journal/dev-log", "/dev/log")


def first_contact():
    began = time.monotonic()
    print(install(NEW))
    installed = time.monotonic()
    check(asked() == [], "a first installation starts nothing")
    services = start()
    ready = time.monotonic()
    with open("/usr/lib/platform-mixer/nats-server", "rb") as file:
        pin = f"PLATFORM_SNAKE_SERVER_SHA256={hashlib.file_digest(file, 'sha256').hexdigest()}"
    check(unit("platform-mixer")["Environment"] == pin, "the Mixer is told which bus server it may run")
    rows = eventually("the first rows", lambda: subprocess.run(["platform", "logs", "-o", "ndjson"], capture_output=True, text=True).stdout)
    first = time.monotonic()
    print(
        f"FIGURE dpkg -i {installed - began:.1f} s, both programs ready {ready - installed:.1f} s later, "
        f"first rows {first - ready:.1f} s later: {first - began:.1f} s in all",
        flush=True,
    )
    check(rows, "platform logs shows rows")
    check(racks() == {"press-1": "active"}, "the machine's Rack has joined, under the machine's name")
    check(see("the boiler is hot"), "the machine's own logs are in platform logs")
    print(f"FIGURE the journal's first entry is seen {time.monotonic() - began:.1f} s after dpkg -i began", flush=True)
    print(run("platform", "doctor", "-c", "/etc/platform/platform.toml"))
    print(run("platform", "doctor", "--mixer"))
    for name, service in services.items():
        service.reload()
        facts = os.stat(f"/var/lib/{name}")
        owner = (pwd.getpwuid(facts.st_uid).pw_name, oct(facts.st_mode & 0o777))
        check(owner == (name, "0o750"), f"{name}: its user owns its folder, and others do not read it")
        status = open(f"/proc/{service.process.pid}/status").read()
        check("CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status, f"{name} runs without capabilities")
    stranger()
    stop(services)


def racks():
    lines = run("platform", "racks", "list", "-o", "ndjson").splitlines()
    return {rack["name"]: rack["state"] for rack in map(json.loads, lines)}


def stranger():
    """Any other program of the machine reaches the bus, and is no Rack for that."""
    places = {"PLATFORM_BASE_STATE_DIR": "/tmp/stranger", "PLATFORM_STORE_DIR": "/tmp/stranger", "PLATFORM_LOGGING_FILENAME": "/tmp/stranger/log"}
    os.makedirs("/tmp/stranger", mode=0o700)
    shutil.chown("/tmp/stranger", "nobody", "nogroup")
    asks = subprocess.Popen(
        ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "platform", "run"],
        cwd="/tmp/stranger",
        env={"PATH": "/usr/bin:/bin", "PLATFORM_BASE_NAME": "stranger"} | places,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open("/tmp/stranger.stderr", "ab"),
    )
    state = eventually("the stranger", lambda: racks().get("stranger"))
    check(state == "pending", "a Rack of another user waits for approval")
    asks.terminate()
    asks.wait(SOON)


def judged():
    for name in PACKAGES:
        path = f"/usr/lib/systemd/system/{name}.service"
        said = run("systemd-analyze", "verify", "--man=no", path)
        check(name not in said, f"systemd-analyze verify has nothing to say of {name}: {said!r}")
        said = run("systemd-analyze", "security", "--offline=yes", "--threshold=30", path)
        print("FIGURE " + said.strip().splitlines()[-1], flush=True)


def upgrade():
    install(OLD)
    check(all(version(name).startswith("0.0.9-1 ii") for name in PACKAGES), "the older version is installed")
    asked()
    own = {name: f"/etc/platform/{name}.toml" for name in PACKAGES}
    for path in own.values():
        with open(path, "a") as file:
            file.write("\n# Of this machine.\n")
    with open(own["platform"]) as file:
        text = file.read().replace('name = ""', 'name = "press-1"')
    with open(own["platform"], "w") as file:
        file.write(text)
    services = start()
    check(see("before the upgrade")[0]["entity_name"] == "press-1", "the changed conffile is in force")

    # A disk that is full while dpkg unpacks: the files of before stay, and so does what runs.
    full = "/usr/lib/platform-mixer"
    size = os.path.getsize(f"{full}/nats-server")
    shutil.copy2(f"{full}/nats-server", "/tmp/nats-server")
    run("mount", "-t", "tmpfs", "-o", f"size={size + (1 << 20)},mode=755", "full", full)
    shutil.copy2("/tmp/nats-server", f"{full}/nats-server")
    new = [path for path in NEW if "/platform-mixer_" in path]
    said = run("dpkg", "--force-confold", "-i", *new, expect=1)
    check("No space left on device" in said, "dpkg says that the disk is full")
    check(version("platform-mixer").startswith("0.0.9-1 ii"), "the older version is still the installed one")
    left = [path for path in glob.glob("/usr/bin/*.dpkg-*") + glob.glob(f"{full}/*.dpkg-*")]
    check(left == [], "nothing of the newer one is left")
    check(asked() == [], "and nothing is restarted")
    check(see("with a full disk"), "the Mixer runs on")
    # The program that runs keeps the file of the mount busy.
    run("umount", "--lazy", full)

    install(NEW)
    check(sorted(asked()) == sorted(restarts()), "an upgrade restarts what runs")
    script(POLICY, "exit 101")
    install(NEW)
    check(asked() == [], "unless the machine's policy forbids it")
    os.unlink(POLICY)
    check(all(not version(name).startswith("0.0.9") and " ii" in version(name) for name in PACKAGES), "the newer version is installed")
    for name, path in own.items():
        with open(path) as file:
            text = file.read()
        check("# Of this machine." in text and "# Of release 0.0.9." in text, f"{path} is as the machine had it")
        check(os.path.exists(f"{path}.dpkg-dist"), f"the newer one is beside it: {path}.dpkg-dist")
    stop(services)
    services = start()
    check(shown("before the upgrade"), "rows of before the upgrade are there")
    check(see("after the upgrade"), "and new ones come")
    stop(services)


def removal():
    for name in PACKAGES:
        run(f"/var/lib/dpkg/info/{name}.postinst", "abort-remove")
        begins = [f"--system --quiet is-enabled {name}.service", f"--system --no-block start {name}.service"]
        check(asked() == begins, f"{name} is started again after a removal that was broken off")
    run("dpkg", "--remove", *PACKAGES)
    stops = [line for line in asked() if line.split()[-2:-1] == ["stop"]]
    check(len(stops) == len(PACKAGES), f"a removal stops what runs: {stops}")
    check(not os.path.exists("/usr/bin/platform") and not os.path.exists("/usr/lib/platform-mixer"), "the programs are gone")
    check(os.path.exists("/var/lib/platform-mixer/data/registry.redb"), "a removal keeps the data")
    check(os.path.exists("/etc/platform/platform-mixer.toml"), "a removal keeps the configuration")
    # Back again, as it was.
    install(NEW)
    services = start()
    check(shown("after the upgrade"), "what was removed and installed again goes on")
    stop(services)
    run("dpkg", "--purge", *PACKAGES)
    gone = ["/var/lib/platform-mixer", "/var/lib/platform", "/etc/platform"]
    check(not any(map(os.path.exists, gone)), "a purge takes data and configuration")
    check(all(pwd.getpwnam(name) for name in PACKAGES), "a purge keeps the users")
    left = [line for line in run("dpkg", "-l").splitlines() if line.split()[1:2] in ([name] for name in PACKAGES)]
    check(left == [], "dpkg knows of nothing")


def purge_of_a_mount():
    """Data on a disk of its own: its mount point cannot be removed."""
    data = "/var/lib/platform"
    run("mount", "-t", "tmpfs", "data", data)
    os.makedirs(f"{data}/data/spool")
    run("dpkg", "--purge", *PACKAGES)
    check(os.path.ismount(data) and os.listdir(data) == [], "a purge empties a folder that is a mount point")
    run("umount", data)
    shutil.rmtree(data)  # what lay below the mount
    asked()


def main():
    manager()
    journald()
    first_contact()
    judged()
    purge_of_a_mount()
    upgrade()
    removal()
    print("packages: 1 passed, 0 failed")


main()
