#!/usr/bin/env python3
"""The part of package-test.sh that runs in its root, as root, in namespaces of its own.

Not here: how the two programs run and what systemctl answers (package_test_services.py).
"""
import glob
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from package_test_services import SOON, Service, asked, check, eventually, manager, run, script, tell, unit

PACKAGES = ["platform-mixer", "platform"]
POLICY = "/usr/sbin/policy-rc.d"
NEW = sorted(glob.glob("/packages/*.deb"))
OLD = sorted(glob.glob("/packages/old/*.deb"))


def version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version} ${db:Status-Abbrev}", package], capture_output=True, text=True)
    return done.stdout.strip()


def install(files, **more):
    return run("dpkg", "--force-confold", "-i", *files, **more)


def restarts():
    return [f"--system --no-block try-restart {name}.service" for name in PACKAGES]


def start():
    """Both at once, as at the start of a machine: the Rack is begun before the Mixer is ready."""
    mixer = Service("platform-mixer")
    with ThreadPoolExecutor(1) as waits:
        ready = waits.submit(mixer.ready)
        rack = Service("platform").ready()
        # What went wrong there goes wrong here.
        ready.result()
    return {"platform-mixer": mixer, "platform": rack}


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
    check("platform-mixer" not in unit("platform")["After"], "a Rack does not wait for all of its Mixer's start")
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


def late_joiner():
    """A Rack that began before its Mixer, and then waited for approval, joins when it starts again."""
    alone = Service("platform").ready()
    check("platform-mixer does not run" in alone.said, "a Rack without its Mixer says why it has not joined")
    alone.stop()
    mixer = Service("platform-mixer").ready()
    tell(mixer.name, "inactive")
    waits = Service("platform").ready()
    eventually("the Rack's request", lambda: racks() == {"press-1": "pending"})
    waits.stop()
    # It keeps an invite that is good no more, as one that has expired.
    text = subprocess.run(["platform", "racks", "invite", "press-1"], capture_output=True, text=True, check=True).stdout
    as_rack = ["setpriv", "--reuid=platform", "--regid=platform", "--init-groups", "--"]
    join = ["platform", "join", "-c", "/etc/platform/platform.toml"]
    run(*as_rack, *join, input=text)
    run("platform", "racks", "revoke-invite", "press-1")
    long_ago = time.time() - 900
    os.utime("/var/lib/platform/data/rack.flux", (long_ago, long_ago))
    tell(mixer.name, "active", mixer.status)
    joins = Service("platform").ready()
    check("it admits press-1 once" in joins.said and "not joined" not in joins.said, "a Rack whose kept invite is good no more is given another one")
    eventually("its admission", lambda: racks() == {"press-1": "active"})
    joins.stop()
    joined = Service("platform").ready()
    check(joined.said == "", "a Rack that has joined asks for no other invite")
    stop({"platform-mixer": mixer, "platform": joined})


def invited_at():
    """Where the invite is asked for, by what the Mixer says of itself."""
    fake = 'case "$1 $2" in "config show") exec /usr/bin/platform "$@" ;; "join --check") exit 1 ;; esac\necho "$5 $(id -un)" > /packages/asked\nexit 69'
    script("/packages/fake/platform", fake)
    places = {
        "serves http://127.0.0.1:8090, bus nats://localhost:4222": "http://127.0.0.1:8090",
        "serves http://[::]:8091, bus nats://localhost:4222": "http://[::1]:8091",
        "serves https://0.0.0.0:8443, bus nats://mixer.example.org:4222": "https://localhost:8443",
        # Another bus, and a Mixer that was to read a wrong file.
        "serves http://127.0.0.1:8090, bus nats://localhost:4333": "",
        "configuration refused: see the log": "",
    }
    for status, place in places.items():
        tell("platform-mixer", "active", status)
        path = {"PATH": f"/packages/fake:{os.environ['PATH']}"}
        open("/packages/asked", "w").close()
        os.chmod("/packages/asked", 0o666)
        done = subprocess.run(["/usr/lib/platform/join-local"], env=path, capture_output=True, text=True, timeout=SOON)
        with open("/packages/asked") as file:
            found = file.read().strip()
        # As the one whom the Mixer trusts whatever api.auth is.
        check((done.returncode, found) == (0, place and f"{place} platform-mixer"), f"{status}: the invite is asked for at {place or 'no place'}: {found}")
        check("platform racks approve NAME" in done.stderr, "and the operator is told what to do")
    # An invite that is kept is replaced by one of the same name, if it is old and of this Mixer's bus.
    data = "/var/lib/platform/data"
    os.rename(data, f"{data}.kept")
    os.mkdir(data)
    state = f"{data}/rack.flux"
    keeps = 'case "$1 $2" in "config show") exec /usr/bin/platform "$@" ;; "join --check") echo "this Rack keeps an invite as press-7 for %s"; exit 0 ;; esac\necho "$3" > /packages/asked\nexit 69'
    tell("platform-mixer", "active", "serves http://127.0.0.1:8090, bus nats://localhost:4222")
    for bus, age, name in [
        ("nats://127.0.0.1:4222", 900, "press-7"),
        ("nats://127.0.0.1:4222", 60, ""),
        ("nats://localhost:4333", 900, ""),
        ("nats://mixer.example.org:4222", 900, ""),
    ]:
        script("/packages/fake/platform", keeps % bus)
        open(state, "w").close()
        os.utime(state, (time.time() - age,) * 2)
        open("/packages/asked", "w").close()
        done = subprocess.run(["/usr/lib/platform/join-local"], env=path, cwd="/var/lib/platform", capture_output=True, text=True, timeout=SOON)
        with open("/packages/asked") as file:
            found = file.read().strip()
        check((done.returncode, found, done.stderr) == (0, name, ""), f"an invite of {bus}, {age} s old, is replaced by one for {name or 'nobody'}: {found}")
    shutil.rmtree(data)
    os.rename(f"{data}.kept", data)
    tell("platform-mixer", "inactive")


def racks():
    done = subprocess.run(["platform", "racks", "list", "-o", "ndjson"], capture_output=True, text=True, check=True)
    return {rack["name"]: rack["state"] for rack in map(json.loads, done.stdout.splitlines())}


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
    late_joiner()
    invited_at()
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
    said = install(NEW)
    check(asked() == [], "unless the machine's policy forbids it")
    told = [f"{name}: the program of before still runs" in said for name in PACKAGES]
    check(all(told), "of which the operator is told")
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
    services = start()
    # One that is still stopping writes too.
    tell("platform", "deactivating")
    said = run("dpkg", "--purge", *PACKAGES, expect=1)
    check(all(f"{name}.service still runs" in said for name in PACKAGES), "a purge of what could not be stopped is refused")
    check(os.path.exists("/var/lib/platform-mixer/data/registry.redb"), "and leaves its data")
    stop(services)
    # What `platform init` leaves beside the configuration.
    os.makedirs("/etc/platform", exist_ok=True)
    for left in ["platform.env.before", "platform.toml.before.1", "platform-mixer.env", "first.yaml.before"]:
        open(f"/etc/platform/{left}", "w").close()
    run("dpkg", "--purge", *PACKAGES)
    gone = ["/var/lib/platform-mixer", "/var/lib/platform", "/etc/platform"]
    check(not any(map(os.path.exists, gone)), "a purge takes data and configuration")
    check(all(pwd.getpwnam(name) for name in PACKAGES), "a purge keeps the users")
    left = [line for line in run("dpkg", "-l").splitlines() if line.split()[1:2] in ([name] for name in PACKAGES)]
    check(left == [], "dpkg knows of nothing")


def restore():
    """The registry and the keys of a backup come back as the service's, on a machine that kept the rows alone."""
    services = start()
    see("before the loss")
    made = subprocess.run(["platform", "backup", "-o", "ndjson"], capture_output=True, text=True, check=True)
    folder = "/srv/mixer/" + os.path.basename(json.loads(made.stdout)["folder"])
    stop(services)
    data = "/var/lib/platform-mixer/data"
    run("cp", "-a", f"{data}/backups", "/srv/mixer")
    shutil.rmtree(f"{data}/backups")
    run("cp", "-a", data, "/srv/mixer-rows")
    run("dpkg", "--purge", "platform-mixer")
    install([path for path in NEW if "/platform-mixer_" in path])
    run("cp", "-a", "/srv/mixer-rows", data)
    for lost in ["registry.redb", "cluster.key"]:
        os.unlink(f"{data}/{lost}")
    shutil.rmtree(f"{data}/keys")
    secrets = unit("platform-mixer")["EnvironmentFile"].removeprefix("-")
    with open(secrets, "w") as file:
        file.write("# Of this machine.\nPLATFORM_LOGGING_LEVEL='warn'\n")
    os.chmod(secrets, 0o600)

    # Where systemd runs it runs the command, under what the unit says.
    script("/packages/bin/systemd-run", 'env\nprintf "%s\\n" "$*"')
    *variables, said = run("platform-mixer-admin", "copy", "$HOME", "a b").splitlines()
    for pin in unit("platform-mixer")["Environment"].split():
        is_given = pin in variables and f" --setenv={pin.split('=')[0]} " in said
        check(is_given, f"platform-mixer-admin gives {pin} as the unit does")
    for key in ["User", "UMask", "WorkingDirectory", "EnvironmentFile"]:
        check(f" -p {key}={unit('platform-mixer')[key]} " in said, f"platform-mixer-admin gives {key} as the unit does")
    check(said.endswith(unit("platform-mixer")["ExecStart"] + " copy $$HOME a b"), f"and the arguments: {said}")
    # Elsewhere it does the same by itself.
    os.rename("/run/systemd/system", "/run/systemd/away")
    run("platform-mixer-admin", expect=64)
    check('level = "warn"' in run("platform-mixer-admin", "config", "show"), "platform-mixer-admin has the environment of the service")
    run("platform-mixer-admin", "restore", folder)
    os.rename("/run/systemd/away", "/run/systemd/system")
    for file in ["registry.redb", "cluster.key"]:
        facts = os.stat(f"{data}/{file}")
        owner = (pwd.getpwuid(facts.st_uid).pw_name, oct(facts.st_mode & 0o777))
        check(owner == ("platform-mixer", "0o600"), f"{file} of the backup is the service's: {owner}")
    services = start()
    check(shown("before the loss"), "rows of before the loss are there")
    check(racks() == {"press-1": "active"} and see("after the loss"), "and the Rack goes on, which knows the cluster by its key")
    stop(services)
    asked()


def purge_of_other_places():
    """Data on a disk of its own, with another one mounted in it, and data that a link leads to."""
    data, elsewhere = "/var/lib/platform", "/srv/elsewhere"
    run("mount", "-t", "tmpfs", "data", data)
    os.makedirs(f"{data}/data/spool")
    os.makedirs(f"{data}/backup")
    run("mount", "-t", "tmpfs", "backup", f"{data}/backup")
    open(f"{data}/backup/kept", "w").close()
    shutil.move("/var/lib/platform-mixer", elsewhere)
    os.symlink(elsewhere, "/var/lib/platform-mixer")
    os.symlink("/srv/rows", f"{elsewhere}/rows")
    # Of the machine's own.
    os.makedirs("/etc/platform/platform.env.d")
    said = run("dpkg", "--purge", *PACKAGES)
    check(os.path.isdir("/etc/platform/platform.env.d"), "a purge leaves what is no file of ours")
    shutil.rmtree("/etc/platform")
    check(os.listdir(data) == ["backup"] and os.path.exists(f"{data}/backup/kept"), "a purge empties a mount point, and not a disk that is mounted in it")
    check(os.listdir(elsewhere) == [], "a purge empties the folder that a link leads to")
    stays = ["Device or resource busy", f"{data} itself stays", "platform-mixer/rows was a link", "/var/lib/platform-mixer itself stays"]
    check(all(part in said for part in stays), f"and says what stays: {said}")
    run("umount", f"{data}/backup")
    run("umount", data)
    shutil.rmtree(data)  # what lay below the mount
    os.unlink("/var/lib/platform-mixer")
    asked()


def main():
    manager()
    journald()
    first_contact()
    judged()
    purge_of_other_places()
    upgrade()
    restore()
    removal()
    print("packages: 1 passed, 0 failed")


main()
