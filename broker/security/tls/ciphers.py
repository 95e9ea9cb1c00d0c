"""Names of cipher suites: those of the standard and Java, and OpenSSL's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Suites of TLS 1.3, with one name everywhere.
OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_..."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not (separator and name.startswith("TLS_")):
        return name
    cipher = cipher.replace("AES_", "AES").replace("CAMELLIA_", "CAMELLIA").replace("ARIA_", "ARIA")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    # OpenSSL omits the defaults: the mode CBC, and RSA as the key exchange.
    words = [*exchange.split("_"), *cipher.replace("_CBC", "").split("_")]
    return "-".join(words[1:] if exchange == "RSA" else words)


def split(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of TLS 1.3, and OpenSSL's names of the others."""
    newer = tuple(name for name in names if name in OF_TLS_1_3)
    return newer, tuple(openssl_name(name) for name in names if name not in OF_TLS_1_3)
