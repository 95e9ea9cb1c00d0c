"""The daily warning about a certificate that expires soon."""

import pytest

from rotunda.broker.network.processor.tls.certificate_expiry import DAY_S, CertificateExpiry


def test_a_certificate_that_ends_is_warned_of_once_a_day(caplog: pytest.LogCaptureFixture) -> None:
    expiry = CertificateExpiry()
    end_s = 1_800_000_000
    begin_s = end_s - 32 * DAY_S
    for hour in range(34 * 24):
        expiry.run_once(begin_s + hour * 3600, {"SSL": end_s, "OTHER": end_s + 90 * DAY_S})
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 32
    assert lines[0].startswith("the certificate of listener SSL ends in 29 days, on 2027-01-15 08:00+00:00: replace")
    assert "ends in 0 days" in lines[29]
    assert "is over since" in lines[-1]


def test_one_that_replaces_it_is_warned_of_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    expiry = CertificateExpiry()
    for end_s in (1_000_000, 1_000_000, 1_000_001):
        expiry.run_once(999_000, {"SSL": end_s})
    assert len(caplog.records) == 2
