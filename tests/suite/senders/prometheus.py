"""What a Prometheus holds of a job, by its own API, as the rows that are to be stored.

usage: prometheus.py written PROMETHEUS JOB SCRAPES   every sample of the first scrapes, at least so many, with exemplars, as remote write sends them
       prometheus.py scraped PROMETHEUS JOB TIME      what a scrape of the same target at that time becomes; without its time
"""

import json
import math
import sys
import time
from datetime import datetime, timedelta, timezone
from urllib.parse import urlencode
from urllib.request import urlopen

way, base, job, of = sys.argv[1:5]
SELECTOR = f'{{job="{job}"}}'
# What a Prometheus adds to each scrape, of which the gear adds its own.
ADDED = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_series_added"}


def ask(path, **parameters):
    with urlopen(f"{base}/api/v1/{path}?{urlencode(parameters)}", timeout=60) as answer:
        return json.load(answer)["data"]


def text(seconds, digits="milliseconds"):
    """A time as it is stored; the API has milliseconds as fractions of seconds."""
    scale = 1_000 if digits == "milliseconds" else 1_000_000
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=math.floor(seconds * scale + 0.5) * (1_000_000 // scale))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def say(row):
    print(json.dumps(row, allow_nan=False))


def native_labels(histogram):
    """A native histogram by its bounds: those of bucket i are base^(i - 1) and base^i, and 2^(2^-schema) is the base."""
    found = {"otel.count": float(histogram["count"])}
    counts = {"positive": {}, "negative": {}}
    for _, left, right, count in histogram["buckets"]:
        left, right = float(left), float(right)
        if left < 0 < right:
            found |= {"otel.zero_count": float(count), "otel.zero_threshold": right}
            continue
        near, far = sorted((abs(left), abs(right)))
        found["otel.scale"] = round(-math.log2(math.log2(far / near)))
        at = round(math.log2(near) * 2 ** found["otel.scale"])
        counts["negative" if right < 0 else "positive"][at] = float(count)
    for half, of in counts.items():
        if of:
            found[f"otel.{half}.offset"] = min(of)
            found[f"otel.{half}.counts"] = [of.get(at, 0) for at in range(min(of), max(of) + 1)]
    return found


def written():
    """A scrape's samples become visible together: up to the last `up`, there are all."""
    while True:
        ups = ask("query", query=f'up{SELECTOR}[1h]')["result"]
        if ups and len(ups[0]["values"]) >= int(of):
            break
        time.sleep(0.1)
    last = ups[0]["values"][-1][0]
    for series in ask("query", query=f"{SELECTOR}[1h]", time=last)["result"]:
        labels = series["metric"]
        name = labels.pop("__name__")
        is_counter = name.endswith("_total") or (name.endswith("_bucket") and "le" in labels)
        for moment, value in series.get("values", ()):
            # A quantile of nothing is no point.
            if value == "NaN" and "quantile" in labels:
                continue
            say({"ts": text(moment), "entity_name": labels["instance"], "name": name, "type": "counter" if is_counter else "gauge", "value": float(value), "labels": labels})
        for moment, histogram in series.get("histograms", ()):
            say({"ts": text(moment), "entity_name": labels["instance"], "name": name, "type": "histogram", "value": float(histogram["sum"]),
                 "labels": labels | native_labels(histogram)})
    for series in ask("query_exemplars", query=SELECTOR, start=last - 3600, end=last):
        labels = series["seriesLabels"]
        name = labels.pop("__name__")
        for found in series["exemplars"]:
            ts, value = text(found["timestamp"]), float(found["value"])
            exemplar = {"time": ts.replace("Z", "000Z"), "value": value} | found["labels"]
            say({"ts": ts, "entity_name": labels["instance"], "name": f"{name}_exemplar", "type": "gauge", "value": value, "labels": labels | {"otel.exemplars": [exemplar]}})


def kinds():
    """The types of families, by name."""
    return {(entry["metric"], entry["type"]) for entry in ask("targets/metadata", match_target=SELECTOR)}


def bound(label):
    return math.inf if label == "+Inf" else float(label)


class Scrape:
    """The points of the samples that Prometheus has of one scrape."""

    def __init__(self, moment):
        self.types = dict(kinds())
        self.exemplars = ask("query_exemplars", query=SELECTOR, start=moment - 3600, end=moment)
        self.points, self.parts, self.starts = [], {}, {}
        for series in ask("query", query=SELECTOR, time=moment)["result"]:
            labels = series["metric"]
            name = labels.pop("__name__")
            if name not in ADDED:
                self.add(name, labels, series["value"][1])

    def family(self, name):
        """The family of a sample, its type, and the end of its name."""
        # The metadata have the names of families: those of OpenMetrics without the ends of their samples.
        for end in ("", "_bucket", "_count", "_sum", "_created", "_total", "_info"):
            family = name.removesuffix(end)
            if name.endswith(end) and family in self.types and (end != "" or self.types[family] != "histogram"):
                return family, self.types[family], end
        return name, "unknown", ""

    def add(self, name, labels, value):
        family, kind, end = self.family(name)
        key = (family, json.dumps({label: labels[label] for label in sorted(labels) if label not in ("le", "quantile")}))
        if end == "_created":
            self.starts[key] = float(value)
        elif kind == "histogram":
            self.parts.setdefault(key, []).append((end, labels, float(value)))
        elif value != "NaN":
            is_counter = kind == "counter" or (kind == "summary" and end != "")
            more = {"otel.summary": True} if kind == "summary" else {}
            exemplars = self.exemplars_of(name, labels)
            more |= {"otel.exemplars": exemplars} if exemplars else {}
            self.points.append((key, {"name": name, "type": "counter" if is_counter else "gauge", "value": float(value), "labels": labels | more}))

    def exemplars_of(self, name, labels):
        of = [series["exemplars"][-1] for series in self.exemplars if series["seriesLabels"] == labels | {"__name__": name}]
        return [{"time": text(one["timestamp"])[:-4], "value": float(one["value"])} | one["labels"] for one in of]

    def histogram(self, key, parts):
        """Buckets that are counted alone."""
        buckets = sorted((bound(labels["le"]), labels, value) for end, labels, value in parts if end == "_bucket")
        exemplars = [one for _, labels, _ in buckets for one in self.exemplars_of(f"{key[0]}_bucket", labels)]
        counts = [value for _, _, value in buckets]
        alone = [after - before for before, after in zip([0, *counts], counts)]
        labels = json.loads(key[1]) | {"otel.bounds": [bound for bound, _, _ in buckets[:-1]], "otel.buckets": alone}
        labels["otel.count"] = next(value for end, _, value in parts if end == "_count")
        labels |= {"otel.exemplars": exemplars} if exemplars else {}
        return {"name": key[0], "type": "histogram", "value": next(value for end, _, value in parts if end == "_sum"), "labels": labels}

    def rows(self):
        for key, point in self.points + [(key, self.histogram(key, parts)) for key, parts in self.parts.items()]:
            if key in self.starts and point["type"] != "gauge":
                point["labels"]["otel.start_time"] = text(self.starts[key], "microseconds").replace("Z", "000Z")
            yield point


def scraped():
    moment = datetime.fromisoformat(of.replace("Z", "+00:00")).timestamp()
    for row in Scrape(moment).rows():
        say(row)


{"written": written, "scraped": scraped}[way]()
