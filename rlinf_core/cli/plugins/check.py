"""``rlinf plugins check``: put plugins to the test, in rising stages."""

from __future__ import annotations

from collections import Counter

from rlinf_core.cli.report import print_json
from rlinf_core.diagnosis.check import Report, check_plugins
from rlinf_core.diagnosis.findings import Finding, Outcome, Stage
from rlinf_core.plugins.settings import user_settings


def main(names: list[str], imports: bool, probe: bool, json: bool) -> int:
    """Check; return the exit code: 0 if nothing failed, 1 if a check did."""
    chosen = [s for s, on in ((Stage.IMPORT, imports), (Stage.PROBE, probe)) if on]
    reports = check_plugins(names, chosen, user_settings())
    if json:
        print_json(
            stages=[str(stage) for stage in (Stage.METADATA, Stage.MANIFEST, *chosen)],
            distributions=[
                {
                    "distribution": report.distribution,
                    "version": report.version,
                    "failed": report.failed,
                    "checks": [finding.as_json() for finding in report.findings],
                }
                for report in reports
            ],
        )
    else:
        print("\n".join(line for report in reports for line in _lines(report, bool(names))))
    return 1 if any(report.failed for report in reports) else 0


def _lines(report: Report, everything: bool) -> list[str]:
    """Return a report for people; without ``everything`` only what is not as it should be."""
    counts = Counter(finding.outcome for finding in report.findings)
    tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    lines = [f"{report.distribution} {report.version}".rstrip() + f": {tally}"]
    wanted = set(Outcome) if everything else {Outcome.WARNING, Outcome.FAILED}
    for finding in report.findings:
        if finding.outcome in wanted:
            lines += _finding(finding)
    return lines


def _finding(finding: Finding) -> list[str]:
    about = f"{finding.component}: " if finding.component else ""
    name = f"{finding.stage}/{finding.check}"
    lines = [f"  {finding.outcome:<8} {name:<22} {about}{finding.sentence}"]
    if finding.remedy:
        lines.append(f"{'':11}to do: {finding.remedy}")
    lines += [f"{'':11}| {line}" for line in finding.detail.splitlines()]
    return lines
