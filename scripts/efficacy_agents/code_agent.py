#!/usr/bin/env python3
"""smolagents' CodeAgent with the four tools of a bare loop, and Python's own modules for CSV and JSON.

  python3 -m venv VENV && VENV/bin/pip install "smolagents[openai]==1.26.0" openai==3.57.0
  scripts/efficacy --agent "VENV/bin/python $PWD/scripts/efficacy_agents/code_agent.py" ...

OPENAI_BASE_URL, OPENAI_MODEL and OPENAI_API_KEY say which model. All settings but those named below are its own.
"""

import contextlib
import json
import os
import sys

from smolagents import CodeAgent, LogLevel, OpenAIModel, tool

sys.dont_write_bytecode = True
from tools import TOOLS  # noqa: E402

model = OpenAIModel(model_id=os.environ.get("OPENAI_MODEL", "local"), api_base=os.environ["OPENAI_BASE_URL"],
                    api_key=os.environ.get("OPENAI_API_KEY", "none"), temperature=0.1, max_tokens=1200)
agent = CodeAgent(tools=[tool(one) for one in TOOLS], model=model, additional_authorized_imports=["csv", "io", "json"],
                  max_steps=24, verbosity_level=LogLevel.INFO, return_full_result=True,
                  instructions="Do what is asked with the files of the folder. You are exact and do no more than what is asked.")
with contextlib.redirect_stdout(sys.stderr):
    result = agent.run(sys.argv[-1])
usage = result.token_usage
print(json.dumps({"answer": str(result.output), "turns": sum("step_number" in step for step in result.steps),
                  "input": usage.input_tokens if usage else None, "output": usage.output_tokens if usage else None,
                  "ended": result.state}))
