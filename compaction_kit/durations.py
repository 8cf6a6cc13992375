"""Spans of time and how they compare, written for people."""


def format_seconds(seconds: float) -> str:
    """Write seconds for people: "4.2 ms", "42 ms", "0.42 s", "1.3 s", "2 min 5 s", "3 h 4 min"."""
    if not seconds:
        return "0 s"
    if seconds < 0.0995:
        milliseconds = seconds * 1000
        return f"{milliseconds:.{0 if milliseconds >= 9.95 else 1}f} ms"
    if seconds < 9.95:
        return f"{seconds:.{1 if seconds >= 0.995 else 2}f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def format_factor(factor: float) -> str:
    """Write how many times as fast something is: "1.3", "12", "1,234"."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"
