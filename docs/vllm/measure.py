"""Fills a model server with sheddable completions, sends a burst of high priority, and says what was seen from outside:
the server's own metrics every 20 ms, and what each client heard. Only the standard library.

    python measure.py --gateway 127.0.0.1:8080 --engine 127.0.0.1:8000 --batch 12 --burst 8 --out run.jsonl
"""

import argparse
import asyncio
import json
import re
import time

GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv": "vllm:kv_cache_usage_perc",
}


def now():
    """Microseconds since 1970, as the times of the log are."""
    return time.time_ns() // 1000


class Connection:
    """One HTTP/1.1 exchange, read as it comes: `pieces` yields the body with the instant of each piece."""

    def __init__(self, address, host):
        self.address, self.host = address, host

    async def send(self, method, path, headers=None, body=b""):
        host, port = self.address.rsplit(":", 1)
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.host}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if ": " in line)}
        return self

    async def pieces(self):
        """The body, and at last whether it was whole."""
        self.whole = False
        if "content-length" in self.headers:
            yield now(), await self.reader.readexactly(int(self.headers["content-length"]))
            self.whole = True
            return
        while True:
            try:
                size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
                piece = await self.reader.readexactly(size + 2)
            except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                return
            if size == 0:
                self.whole = True
                return
            yield now(), piece[:-2]

    def close(self):
        self.writer.close()


async def watch(engine, out, stop):
    """Samples the server's metrics; each with the instants of question and answer."""
    while not stop.is_set():
        asked = now()
        connection = await Connection(engine, engine).send("GET", "/metrics", {"connection": "close"})
        text = b"".join([piece async for _, piece in connection.pieces()]).decode()
        connection.close()
        sample = {"what": "sample", "asked": asked, "at": now()}
        for short, name in GAUGES.items():
            found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)
            sample[short] = float(found[1]) if found else None
        out.append(sample)
        await asyncio.sleep(max(0.0, 0.02 - (now() - asked) / 1e6))


async def complete(gateway, out, number, objective, tokens, stream, model):
    """One completion, to its end."""
    request = {
        "model": model,
        "messages": [{"role": "user", "content": f"request {number} waits"}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    if stream:
        request["stream_options"] = {"include_usage": True}
    headers = {
        "content-type": "application/json",
        "x-llm-d-inference-objective": objective,
        "x-llm-d-inference-fairness-id": objective,
        "x-request-id": f"{objective}-{number}",
    }
    seen = {"what": "client", "id": f"{objective}-{number}", "stream": stream, "sent": now()}
    out.append(seen)
    try:
        connection = await Connection(gateway, "weir").send(
            "POST", "/v1/chat/completions", headers, json.dumps(request).encode()
        )
        seen.update(head=now(), status=connection.status, reason=connection.headers.get("x-weir-dropped-reason"))
        last, bytes_read, pieces = b"", 0, 0
        async for at, piece in connection.pieces():
            seen.setdefault("first", at)
            seen["last"] = at
            pieces, bytes_read = pieces + 1, bytes_read + len(piece)
            last = (last + piece)[-600:]
        connection.close()
        seen.update(ended=now(), whole=connection.whole, pieces=pieces, bytes=bytes_read)
        seen["tail"] = last.decode(errors="replace")[-300:]
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        seen.update(ended=now(), error=repr(error))


async def run(args):
    out, stop = [], asyncio.Event()
    sampler = asyncio.create_task(watch(args.engine, out, stop))
    one = lambda number, objective, tokens, stream: asyncio.create_task(
        complete(args.gateway, out, number, objective, tokens, stream, args.model)
    )
    batch = []
    for number in range(args.batch):
        # Every fourth does not stream.
        batch.append(one(number, "batch", args.batch_tokens, number % 4 != 3))
        await asyncio.sleep(args.gap)
    await asyncio.sleep(args.settle)
    out.append({"what": "burst", "at": now()})
    burst = [one(number, "interactive", args.burst_tokens, True) for number in range(args.burst)]
    await asyncio.wait(burst, timeout=args.patience)
    await asyncio.sleep(1.0)
    for task in batch + burst:
        task.cancel()
    await asyncio.gather(*batch, *burst, return_exceptions=True)
    # What is left is cut by its clients; the engine is empty again after that.
    await asyncio.sleep(1.0)
    stop.set()
    await sampler
    with open(args.out, "w") as file:
        for line in out:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", default="127.0.0.1:8080")
    parser.add_argument("--engine", default="127.0.0.1:8000")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--batch-tokens", type=int, default=1900)
    parser.add_argument("--burst", type=int, default=8)
    parser.add_argument("--burst-tokens", type=int, default=64)
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between two of the batch")
    parser.add_argument("--settle", type=float, default=1.5, help="seconds between batch and burst")
    parser.add_argument("--patience", type=float, default=25.0, help="seconds for the burst")
    parser.add_argument("--out", default="run.jsonl")
    asyncio.run(run(parser.parse_args()))
