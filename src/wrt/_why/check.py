"""Which operation of a run has a backward that disagrees with its forward."""

from __future__ import annotations

from wrt._core.evidence import Evidence
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Node
from wrt._core.where import Where
from wrt._why.cause import causes, key, ops
from wrt._why.local_check import deliberate, forward_mismatch, mismatch, pulls

SYMMETRIC = ops("eigh eigvalsh cholesky cholesky_ex symeig linalg_eigh linalg_eigvalsh linalg_cholesky linalg_cholesky_ex svd "
                "linalg_svd qr linalg_qr lobpcg eig linalg_eig SelfAdjointEigV2 Svd Cholesky Qr pinverse pinv linalg_pinv "
                "linalg_lstsq lstsq matrix_rank linalg_matrix_rank")  # fmt: skip
"""Defined on symmetric matrices, on one rank, or up to a sign: one element cannot be moved alone."""

BY_CONVENTION = ops("embedding embedding_bag as_strided as_strided_scatter as_strided_copy resize set")
"""No derivative where the library says so (a padding row), or a result that hangs on how the memory is laid out."""


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
        else:
            wrong = forward_mismatch(evidence, node, again, pulled[node.id])
            if wrong is not None:
                found.append(_finding(node, wrong.words, again.custom, None, certain=True, mode="forward mode"))
    return Findings(tuple(found), "check")


def _is_checkable(node: Node) -> bool:
    left_alone = key(node.op) in SYMMETRIC or key(node.op) in BY_CONVENTION
    return node.gradient in ("yes", "custom") and node.write is None and bool(node.inputs) and not left_alone


def _finding(
    node: Node, words: str, custom: str, rule: Where | None, *, certain: bool, mode: str = "backward"
) -> Finding:
    cause = causes()["custom_backward_wrong"]
    name = custom or node.op
    where = rule if custom and rule is not None else node.where
    sentence = f"the {mode} of {name} disagrees with its forward"
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
