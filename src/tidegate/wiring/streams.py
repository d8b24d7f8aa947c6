"""What wiring makes of the `streams` section, and of the other workers of a node, to which a client may return for its stream."""

from __future__ import annotations

from pathlib import Path

from tidegate.adapters.metrics.figures import figures
from tidegate.config.schema import Configuration, LeaveName, TimeoutsSection
from tidegate.domain.units import UpstreamName
from tidegate.gateway.statistics import StreamStatistics
from tidegate.gateway.stream_settings import StreamSettings
from tidegate.http.client_local import LocalClient
from tidegate.policy.resilience.leave import LeavePolicy


def stream_settings(configuration: Configuration) -> StreamSettings:
    section = configuration.streams
    clocks = [upstream.timeouts for upstream in configuration.upstreams.values()] or [TimeoutsSection()]
    return StreamSettings(
        heartbeat_s=section.heartbeat_s,
        resumable=section.resumable,
        resume_window_s=section.resume_window_s,
        resume_buffer_bytes=section.resume_buffer_bytes,
        resume_total_bytes=section.resume_total_bytes,
        peer_silence_s=max(section.heartbeat_s or 0.0, *(pause for each in clocks for pause in (each.first_token_s, each.stall_s))),
    )


def leave_policies(configuration: Configuration) -> dict[UpstreamName, LeavePolicy]:
    """Give the policy of each upstream whose calls are not simply cancelled when their client leaves."""
    return {
        UpstreamName(name): LeavePolicy(section.drain_s if section.on_client_leave is LeaveName.DRAIN else None)
        for name, section in configuration.upstreams.items()
        if section.on_client_leave is not LeaveName.CANCEL
    }


def stream_figures(statistics: StreamStatistics) -> tuple[dict[str, float], dict[str, float]]:
    return figures("streams", statistics, levels=("resumable", "resume_buffer_bytes"))


def peer_socket(directory: Path, worker: int) -> Path:
    """Where a worker serves the others: a client may return for its stream to any of them."""
    return directory / f"worker-{worker}.sock"


def other_workers(directory: Path, worker: int, workers: int) -> dict[int, LocalClient]:
    return {index: LocalClient(peer_socket(directory, index)) for index in range(workers) if index != worker}
