#!/usr/bin/env python3
"""The least that is an agent: asks a model, does what it says, tells it what came of that, until it answers.

  scripts/efficacy --agent "python3 $PWD/scripts/efficacy_agents/bare_loop.py" ...

OPENAI_BASE_URL, OPENAI_MODEL and OPENAI_API_KEY say which model. It is asked for JSON of a schema (response_format), which
posse-local and llama.cpp's server hold their models to. Needs Python 3.11 and no package.
"""

import inspect
import json
import os
import sys
import urllib.request

sys.dont_write_bytecode = True
from tools import TOOLS  # noqa: E402

TURNS = 24
NAMED = {tool.__name__: tool for tool in TOOLS}
HEAD = ("Do what is asked with the files of the folder. You are exact and do no more than what is asked.\n"
        "Each reply is one JSON object: {\"tool\": a name, and its arguments}. The tools:\n"
        + "".join(f"- {name}{inspect.signature(tool)}: {tool.__doc__.splitlines()[0]}\n" for name, tool in NAMED.items())
        + "- answer(text: str): Ends the work with the answer to what was asked.")


def step(tool, arguments):
    properties = {"tool": {"const": tool}} | {name: {"type": "string"} for name in arguments}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMA = {"anyOf": [*(step(name, inspect.signature(tool).parameters) for name, tool in NAMED.items()), step("answer", ["text"])]}


def ask(messages):
    body = {"model": os.environ.get("OPENAI_MODEL", "local"), "messages": messages, "temperature": 0.1, "max_tokens": 1200,
            "response_format": {"type": "json_schema", "json_schema": {"name": "step", "schema": SCHEMA}}}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none")}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=900) as reply:
        return json.load(reply)


def work(goal):
    messages = [{"role": "system", "content": HEAD}, {"role": "user", "content": goal}]
    told = {"answer": "", "turns": 0, "input": 0, "output": 0, "tools": []}
    while told["turns"] < TURNS:
        reply = ask(messages)
        text = reply["choices"][0]["message"]["content"]
        told["turns"] += 1
        told["input"] += reply["usage"]["prompt_tokens"]
        told["output"] += reply["usage"]["completion_tokens"]
        try:
            arguments = json.loads(text)
            tool = arguments.pop("tool")
            if tool == "answer":
                return told | {"answer": arguments["text"], "ended": "answered"}
            told["tools"].append(tool)
            result = NAMED[tool](**arguments)
        except Exception as error:
            result = f"That failed: {error}"
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"Result:\n{result}"}]
    return told | {"ended": f"no answer in {TURNS} turns"}


print(json.dumps(work(sys.argv[-1])))
