"""A user for the admin site of the demo."""

from __future__ import annotations

from typing import Final

import psycopg
from django.contrib.auth.hashers import make_password

from fred.dev.house import House

ADMIN: Final = "admin"
_LET_IN: Final = """
    INSERT INTO auth_user (username, password, is_superuser, is_staff, is_active, first_name, last_name, email,
                           date_joined)
    VALUES (%s, %s, true, true, true, '', '', '', now())
    ON CONFLICT (username) DO UPDATE SET password = excluded.password, is_superuser = true, is_staff = true,
                                         is_active = true
"""


def let_in(house: House) -> None:
    """Make the user `admin` with this house's password, or give it that password."""
    with psycopg.connect(house.environments.database_url, autocommit=True) as connection:
        connection.execute(_LET_IN, [ADMIN, make_password(house.vault.admin_password)])
