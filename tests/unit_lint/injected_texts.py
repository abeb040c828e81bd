"""Made-up text that injected defects consist of, and the tools of the injected logs."""

NAMES = (
    "Maria Lopez", "Zoë Kravitz", "Conor O'Brien", "Wei Zhang", "lee.wong@example.com",
    "Priya Raghunathan", "Jean-Luc Marchand", "Anna Sofia Lind", "Tom", "Olga Petrova",
    "samir.haddad@example.org", "Kwame Mensah", "Ingrid Sørensen", "Bob Lee", "Yuki Tanaka",
)  # fmt: skip
SENTENCES = (
    "Answer briefly and name the file you changed.",
    "Never touch more than one module at a time; explain each step before you take it.",
    "Prefer reading over guessing. When two readings are possible, ask.",
    "Keep a list of what is done and what is left, and repeat it at the end of each reply.",
)
THOUGHTS = (
    "The listing shows several candidates, so the next thing is to see which of them is imported.",
    "That error says the path is wrong. A search by name will find where the file lives now.",
    "Before changing anything I want a script that shows the fault, or I cannot tell it is gone.",
    "The test passes for the wrong reason: it never reaches the branch. Let me make it do so.",
)
PROFILE = {
    "theme": "plain", "region": "eu-central", "verbosity": 2, "shell": "bash", "color": False,
    "timeout_seconds": 120, "editor": "vi",
    "history": ["ls", "cat"], "plan": {"seats": 4, "tier": "b"},
}  # fmt: skip


def _tool(name: str, description: str, **properties: str) -> dict[str, object]:
    return {
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string", "description": what}
                           for key, what in properties.items()},
        },
    }  # fmt: skip


TOOLS: list[dict[str, object]] = [
    _tool("run_command", "Run one shell command in the working copy and return its output.",
          command="The command line, one line only", folder="Where to run it",
          timeout="Seconds after which it is stopped"),
    _tool("read_file", "Return a range of lines of a text file, each with its number.",
          path="The file, from the root of the working copy", first="First line",
          last="Last line, inclusive"),
    _tool("write_file", "Replace a text file, or make it where there is none yet.",
          path="The file", content="All of its new text", mode="Permissions in octal"),
    _tool("search_text", "Find lines that match a pattern below a folder.",
          pattern="A regular expression", folder="Where to look",
          suffix="Only files that end in this", limit="At most so many lines"),
    _tool("list_folder", "List what a folder holds, sorted by name.",
          folder="Which", depth="How many levels down"),
    _tool("run_tests", "Run the tests of a module and return what failed.",
          module="Dotted name", pattern="Only tests whose name matches", verbosity="0 to 3"),
    _tool("apply_patch", "Apply a unified diff to the working copy.",
          diff="The diff", strip="Leading path parts to drop"),
    _tool("finish", "Say that the work is done and hand in a summary.",
          summary="What was changed and why", risk="What may break"),
]  # fmt: skip
