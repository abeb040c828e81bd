"""Renders the rule files of deploy/prometheus as PrometheusRules of the Prometheus Operator.

    python deploy/kubernetes/render_rules.py > deploy/kubernetes/prometheusrules.yaml

A test renders them again and compares.
"""

import sys
from pathlib import Path

import yaml

RULES = Path(__file__).parents[1] / "prometheus"
HEADER = """\
# Rendered from deploy/prometheus/*.rules.yml by deploy/kubernetes/render_rules.py: change those.
# Give each the labels your Prometheus selects rules by, often release: NAME.
"""


class _Dumper(yaml.SafeDumper):
    """Expressions as blocks, and everything written out: no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as the base class has it
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def prometheus_rule(name: str, groups: object) -> dict[str, object]:
    """One object of the cluster with the groups of one file."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "prefixscope"}},
        "spec": {"groups": groups},
    }


def rendered() -> str:
    """All rule files, one document each."""
    documents = []
    for file in sorted(RULES.glob("*.rules.yml")):
        name = file.name.removesuffix(".rules.yml")
        groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
        full = name if name == "prefixscope" else f"prefixscope-{name}"
        documents.append(prometheus_rule(full, groups))
    return HEADER + yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )


if __name__ == "__main__":
    sys.stdout.write(rendered())
