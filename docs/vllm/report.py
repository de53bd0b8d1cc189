"""Lays what measure.py saw beside Weir's log of the same run.

    weir log cat --data DATA --json > log.jsonl
    python report.py log.jsonl run.jsonl
"""

import json
import statistics
import sys


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def ms(micros):
    return "-" if micros is None else f"{micros / 1000:.1f}"


def line(name, values):
    values = sorted(value for value in values if value is not None)
    if not values:
        return print(f"{name}: none")
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    print(f"{name}: n {len(values)}, min {ms(values[0])}, p50 {ms(at(0.5))}, p95 {ms(at(0.95))}, max {ms(values[-1])} ms")


def from_log(steps):
    """Requests by number, revocations by number, decisions, dispatch times, what each lease used."""
    names, revoked, decisions, dispatched, used = {}, {}, [], {}, {}
    for step in steps:
        body = step["input"]
        if isinstance(body, dict) and "Arrived" in body:
            names[step["seq"]] = body["Arrived"]["caller_id"]
        if isinstance(body, dict) and "Ended" in body and body["Ended"]["usage"]:
            used[body["Ended"]["request"]] = body["Ended"]["usage"]
        for event in step["events"]:
            kind, e = next(iter(event.items())) if isinstance(event, dict) else (event, {})
            if kind == "ReclamationDecided":
                decisions.append((step["at"], e))
            elif kind == "RevocationIssued":
                revoked[e["number"]] = {"request": e["request"], "issued": step["at"], "age": e["age"]}
            elif kind == "RevocationEnded":
                revoked[e["number"]].update(end=e["end"], confirmed=step["at"])
            elif kind == "Reclaimed":
                revoked[e["number"]].update(reclaimed=e["took"])
            elif kind == "Dispatched":
                dispatched[e["request"]] = (step["at"], e)
    return names, revoked, decisions, dispatched, used


def seen_free(samples, issued, victims, refilled):
    """From the issue to the answer of the first sample that shows so many requests fewer in the engine, and what the two
    show. The places may be taken again before a sample has caught them free: then nothing."""
    before = [s for s in samples if s["at"] <= issued]
    if not before:
        return None, None, None
    held = before[-1]["running"] + before[-1]["waiting"]
    after = [s for s in samples if s["at"] >= issued and s["asked"] < refilled]
    free = next((s for s in after if s["running"] + s["waiting"] <= held - victims), None)
    return (free["at"] - issued if free else None), before[-1], free


def heard(client):
    if client is None:
        return "?"
    if client.get("status") != 200:
        return f"{client.get('status')} {client.get('reason')}"
    if '"code":"evicted"' in client.get("tail", "").replace(" ", ""):
        return f"200, {client.get('pieces')} pieces, then an SSE error evicted"
    return f"200, {client.get('pieces')} pieces, {'whole' if client.get('whole') else 'cut'}"


def main(log, run):
    seen = read(run)
    samples = [s for s in seen if s["what"] == "sample"]
    clients = {c["id"]: c for c in seen if c["what"] == "client"}
    names, revoked, decisions, dispatched, used = from_log(read(log))
    burst = next(s["at"] for s in seen if s["what"] == "burst")
    print(f"samples {len(samples)}, of one {ms(statistics.median(s['at'] - s['asked'] for s in samples))} ms; "
          f"most running {max(s['running'] for s in samples):.0f}, most waiting {max(s['waiting'] for s in samples):.0f}, "
          f"most KV {max(s['kv'] for s in samples):.3f}")
    print("\nrevocation  victim     after burst  confirmed  reclaimed  seen free  engine before -> after  the client")
    rows = []
    for number, r in revoked.items():
        refilled = min((at for at, _ in dispatched.values() if at > r["issued"]), default=float("inf"))
        victims = sum(other["issued"] == r["issued"] for other in revoked.values())
        free, before, after = seen_free(samples, r["issued"], victims, refilled)
        shows = lambda s: f"{s['running']:.0f}+{s['waiting']:.0f}" if s else "?"
        took = r["confirmed"] - r["issued"] if r.get("end") == "Confirmed" else None
        rows.append((took, r.get("reclaimed"), free))
        print(f"{number:>10}  {names[r['request']]:<9}  {ms(r['issued'] - burst):>11}  {ms(took):>9}  {ms(r.get('reclaimed')):>9}"
              f"  {ms(free):>9}  {shows(before):>13} -> {shows(after):<6}  {heard(clients.get(names[r['request']]))}")
    line("\nissued -> confirmed", [row[0] for row in rows])
    line("issued -> reclaimed", [row[1] for row in rows])
    line("issued -> seen free by the other sampler", [row[2] for row in rows])
    print(f"decisions {len(decisions)}, victims per decision {[len(e['victims']) for _, e in decisions]}, "
          f"depth {[e['depth'] for _, e in decisions]}")
    urgent = [number for number, name in names.items() if name and name.startswith("interactive")]
    line("interactive, wait in Weir", [dispatched[n][1]["waited"] for n in urgent if n in dispatched])
    line("interactive, first token", [c["first"] - c["sent"] for c in clients.values() if c["id"].startswith("interactive") and "first" in c])
    kinds = {}
    for client in clients.values():
        word = heard(client) if client.get("status") != 200 or "ended" in client else "200, still ran"
        word = word if "pieces" not in word else f"200, {word.split(', ')[-1]}"
        kinds[(client["id"].split("-")[0], word)] = kinds.get((client["id"].split("-")[0], word), 0) + 1
    print("clients:", "; ".join(f"{count} {who}: {what}" for (who, what), count in sorted(kinds.items())))
    print("usage in the log:", {names[n]: usage for n, usage in used.items()})
    lags = []
    for number, (at, e) in dispatched.items():
        later = [s for s in samples if s["asked"] >= at]
        before = [s for s in samples if s["at"] <= at]
        if before and later:
            held = before[-1]["running"] + before[-1]["waiting"]
            shown = next((s for s in later if s["running"] + s["waiting"] > held), None)
            if shown and shown["at"] - at < 1_000_000:
                lags.append(shown["at"] - at)
    line("dispatch -> the engine's metrics show one more", lags)


if __name__ == "__main__":
    main(*sys.argv[1:3])
