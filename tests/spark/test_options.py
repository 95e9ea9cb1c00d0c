"""Wrong values of options: one clear line and exit code 1, before Spark starts."""

import pytest

from rotunda.spark.failures import JobFailed
from rotunda.spark.job import main
from rotunda.spark.jobs import traffic
from rotunda.spark.options import length_us, positive, several

WHERE = ["--input", "log", "--output", "out"]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "ten", "٣", "9" * 400])
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(JobFailed, match="is not a whole number above zero"):
        positive(text)


def test_several_numbers_are_in_order_and_each_once() -> None:
    assert several("20,5, 20") == [5, 20]


def test_a_length_of_time_is_in_microseconds() -> None:
    assert length_us("10m") == 600_000_000


def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(traffic.JOB, [*WHERE, "--linger-ms", "5,fast"]) == 1
    assert capsys.readouterr().err == "rotunda report traffic: 'fast' is not a whole number above zero\n"
