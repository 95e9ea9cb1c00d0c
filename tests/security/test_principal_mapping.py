"""Rules from names to users; cases of Kafka's SslPrincipalMapperTest among them (H06)."""

import pytest

from rotunda.broker.security.tls.principal_mapping import PrincipalMapping

KAFKAS = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        (KAFKAS, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (KAFKAS, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (KAFKAS, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (KAFKAS, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (KAFKAS, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        ("DEFAULT", "CN=x", "CN=x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=Duke,OU=Others", None),
        (r"RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=host,O=x", "host"),
        (r"RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", "CN=host,O=x", "host"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/U, DEFAULT", "CN=b,O=c", "A/B"),
        (r"RULE:^CN=(\w+)$/$1/", "CN=Zoe", "Zoe"),
        (r"RULE:^CN=(\w+)$/$1/", "CN=Zo\u00eb", None),
        (r"RULE:^CN=(\d+)$/$1/", "CN=\u0661", None),
        (r"RULE:^CN=(?<who>.*?),.*$/${who}-$7/", "CN=b,O=c", "b-$7"),
    ],
)
def test_h06_rules(rules: str, name: str, user: str | None) -> None:
    assert PrincipalMapping(rules).user_of(name) == user


@pytest.mark.parametrize(
    "rules", ["default", "RULE:^CN=(.*)$/$1", "RULE:(/$1/", "RULE:(?u)a/b/", "DEFAULT/L", "RULE:a/b/L, oh"]
)
def test_rules_that_cannot_be_read_are_named(rules: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        PrincipalMapping(rules)
