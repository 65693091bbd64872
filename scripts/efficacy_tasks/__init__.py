"""The tasks of scripts/efficacy: eight worlds of files, each with one task of every kind."""

from . import choir, clinic, garage, hut, museum, podcast, service, shop

_MODULES = {"clinic": clinic, "podcast": podcast, "service": service, "choir": choir,
            "garage": garage, "museum": museum, "shop": shop, "hut": hut}

# What may be tuned on, and what is reported.
HALVES = {"tune": ("clinic", "podcast", "service", "choir"), "report": ("garage", "museum", "shop", "hut")}

# A fact, which file, by way of another file, a sum, the most or first of some, how many, all that fulfil something,
# a new file, a changed file, something that is not there, a file that gives orders, many files, another format,
# nothing to do with files.
KINDS = ("lookup", "locate", "hop", "sum", "compare", "count", "collect", "write", "edit", "absent", "hostile", "long",
         "convert", "plain")

WORLDS = {name: module.FILES for name, module in _MODULES.items()}
TASKS = [task for name, module in _MODULES.items() for task in module.TASKS]
for _name, _module in _MODULES.items():
    for _task in _module.TASKS:
        _task.world = _name
assert all({task.kind for task in module.TASKS} == set(KINDS) for module in _MODULES.values())

# Who does them where no other persona is named: anybody with all tools for files, told nothing about tasks.
PERSONA = {
    "role": "assistant",
    "goal": "Do what is asked with the files of the workspace.",
    "backstory": "You are exact and do no more than what is asked.",
    "tools": ["filesystem", "calculator"],
    "temperature": 0.1,
    "max_reply_tokens": 1200,
    "limits": {"max_turns": 24, "max_tokens": 400000, "max_seconds": 1800},
}
