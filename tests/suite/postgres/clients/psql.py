"""psql: its commands, and what it says of errors."""

import shutil
import subprocess
import tempfile

from answers import ENDLESS, PLACE, table


def of_psql():
    if not shutil.which("psql"):
        return
    release = subprocess.run(["psql", "--version"], capture_output=True, text=True).stdout.split()[2]

    def asked(*commands, aligned=False):
        form = [] if aligned else ["-A", "-t"]
        program = ["psql", "-X", "-q", "-w", *form, "-v", "ON_ERROR_STOP=1", "-d", PLACE]
        done = subprocess.run(program, input="\n".join(commands), capture_output=True, text=True)
        return done.stdout.splitlines() + done.stderr.splitlines()

    def fields(command, first, last):
        return sorted("|".join(line.split("|")[first:last]) for line in asked(command))

    def copied_to_a_file():
        with tempfile.TemporaryDirectory() as folder:
            said = asked(f"\\copy logs (message, level) to '{folder}/logs.csv' csv header")
            with open(f"{folder}/logs.csv") as file:
                lines = file.read().splitlines()
        return said, lines[0], len(lines)

    one = "SELECT message, level, flux_id FROM logs ORDER BY ts LIMIT 1"
    table("psql", release, {
        r"\d": lambda: fields(r"\d", 0, 4),
        r"\d logs": lambda: asked(r"\d logs"),
        r"\d messages": lambda: asked(r"\d messages"),
        r"\d+ logs": lambda: asked(r"\d+ logs"),
        r"\d nothing": lambda: asked(r"\d nothing"),
        r"\dt": lambda: fields(r"\dt", 0, 4),
        r"\dt+": lambda: fields(r"\dt+", 0, 5),
        r"\dt m*": lambda: fields(r"\dt m*", 1, 2),
        r"\dn": lambda: fields(r"\dn", 0, 1),
        r"\df": lambda: asked(r"\df"),
        r"\l": lambda: "platform" in fields(r"\l", 0, 1),
        r"\l encoding": lambda: fields(r"\l platform", 2, 3),
        r"\du": lambda: asked(r"\du nobody"),
        r"\dv": lambda: asked(r"\dv"),
        r"\di": lambda: asked(r"\di"),
        r"\ds": lambda: asked(r"\ds"),
        r"\dT": lambda: asked(r"\dT"),
        r"\dp": lambda: asked(r"\dp logs"),
        r"\db": lambda: asked(r"\db nothing"),
        r"\dx": lambda: asked(r"\dx nothing"),
        r"\x": lambda: asked(r"\x", one + ";", aligned=True),
        r"\gx": lambda: asked(one + r" \gx", aligned=True),
        r"\gdesc": lambda: asked(r"SELECT ts, flux_id, level, count(*), max(ts) - min(ts), 1.5::float8 FROM logs GROUP BY ts, flux_id, level \gdesc"),
        r"\gset": lambda: asked(one + r" \gset", r"\echo :message :level"),
        r"\crosstabview": lambda: asked(r"SELECT level, entity_name, count(*) FROM logs GROUP BY 1, 2 ORDER BY 1 \crosstabview"),
        r"\copy to stdout": lambda: asked(r"\copy (SELECT message, level FROM logs ORDER BY ts LIMIT 2) to stdout csv header"),
        r"\copy to a file": copied_to_a_file,
        r"\encoding": lambda: asked(r"\encoding"),
        "table": lambda: asked(one + ";", aligned=True),
        "transaction": lambda: asked("BEGIN; SAVEPOINT a; SELECT count(*) FROM logs; ROLLBACK TO a; COMMIT;"),
        "error": lambda: [line for line in asked("SELECT levl FROM logs;") if line.startswith("LINE") or line.strip() == "^"],
        "sqlstate": lambda: asked(r"\set VERBOSITY sqlstate", "SELECT levl FROM logs;"),
        "insert": lambda: asked(r"\set VERBOSITY sqlstate", "INSERT INTO logs (level) VALUES ('x');"),
        "statement_timeout": lambda: asked(r"\set VERBOSITY sqlstate", "SET statement_timeout = 200;", ENDLESS + ";"),
        "SHOW": lambda: asked("SHOW TimeZone;", aligned=True) + asked("SHOW server_encoding;"),
    })
