"""Spans of finished requests, sent to an OpenTelemetry collector. Used by the recorder process, where `tracing.otlp` is set."""
