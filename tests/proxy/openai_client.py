"""The stock OpenAI client against a gateway: streams chat completions, or shows how a refusal looks to it.

usage: openai_client.py load URL COUNT TOKENS | openai_client.py one URL
Prints one JSON object. Nothing here knows of Weir but its headers of priority and fairness.
"""

import asyncio
import json
import sys
import time

import openai

CLASSES = ["chat", "default", "batch"]


def client(url):
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


async def one(api, at, tokens):
    name = CLASSES[at % len(CLASSES)]
    headers = {"x-llm-d-inference-objective": name, "x-llm-d-inference-fairness-id": f"tenant-{at % 7}"}
    began = time.monotonic()
    first, text, usage, finish = None, "", None, None
    try:
        stream = await api.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "a prompt of some length " * 20}],
            max_tokens=tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers=headers,
        )
        async for chunk in stream:
            if chunk.choices:
                first = first or time.monotonic() - began
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
            usage = chunk.usage or usage
    except openai.APIError as error:
        return {"class": name, "error": shown(error)}
    return {
        "class": name,
        "ttft": first,
        "took": time.monotonic() - began,
        "words": len(text.split()),
        "finish": finish,
        "completion_tokens": usage.completion_tokens if usage else None,
    }


def shown(error):
    return {
        "kind": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": error.code,
        "type": error.type,
        "text": str(error),
        "body": error.body,
    }


async def load(url, count, tokens):
    api = client(url)
    models = [model.id for model in (await api.models.list()).data]
    results = await asyncio.gather(*(one(api, at, tokens) for at in range(count)))
    return {"models": models, "results": results}


async def single(url):
    return await one(client(url), 2, 500)


def main():
    what, url = sys.argv[1:3]
    if what == "load":
        result = asyncio.run(load(url, int(sys.argv[3]), int(sys.argv[4])))
    else:
        result = asyncio.run(single(url))
    print(json.dumps(result))


main()
