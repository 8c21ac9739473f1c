"""Which operation of a run has a backward that disagrees with its forward."""

from __future__ import annotations

from wrt._core.evidence import Evidence
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Node
from wrt._core.where import Where
from wrt._why.cause import causes, key, ops
from wrt._why.local_check import deliberate, mismatch, pulls

SYMMETRIC = ops("eigh eigvalsh cholesky symeig linalg_eigh linalg_eigvalsh linalg_cholesky svd linalg_svd qr linalg_qr lobpcg "
                "eig linalg_eig SelfAdjointEigV2 Svd Cholesky Qr")  # fmt: skip
"""Defined on symmetric matrices or up to a sign: one element cannot be moved alone."""


def check(evidence: Evidence) -> Findings:
    """Every operation of the run against central differences of its own forward."""
    asked = [node for node in evidence.graph.nodes if _is_checkable(node)]
    pulled = {node.id: pulls(evidence, node) for node in asked}  # all of them before anything runs again
    found = []
    for node in asked:
        again = evidence.again(node)
        if again is None or not again.inputs or not pulled[node.id]:
            continue
        wrong = mismatch(evidence, node, again, pulled[node.id])
        if wrong is not None:
            found.append(_finding(node, wrong.words, again.custom, again.rule, certain=not (again.custom and deliberate(again))))
        elif evidence.mutates(node):
            words = f"{again.custom or node.op} writes into the gradient it is given, which others read too"
            found.append(_finding(node, words, again.custom, again.rule, certain=True))
    return Findings(tuple(found), "check")


def _is_checkable(node: Node) -> bool:
    return node.gradient in ("yes", "custom") and node.write is None and bool(node.inputs) and key(node.op) not in SYMMETRIC


def _finding(node: Node, words: str, custom: str, rule: Where | None, *, certain: bool) -> Finding:
    cause = causes()["custom_backward_wrong"]
    name = custom or node.op
    where = rule if custom and rule is not None else node.where
    sentence = f"the backward of {name} disagrees with its forward"
    if not custom:
        sentence += f" (an operation of the framework, called at {node.where})"
    return Finding(
        cause.slug,
        sentence,
        where,
        certain,
        words,
        cause.remedy if custom else "avoid this output, or give it a derivative of your own",
    )
