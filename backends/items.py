"""The items of a lease as a backend takes them at its door."""

from collections.abc import Iterable

from backends.contract import DEFAULT_SERVICE, INVALID_MANIFEST, MAX_QUANTITY, LeaseItem, ValidationRefused


def normalise_items(items: Iterable[LeaseItem]) -> tuple[LeaseItem, ...]:
    """Check quantities and names as a backend must at its door; a single unnamed item becomes the service `app`.

    Raises `ValidationRefused` with the texts of the contract.
    """
    lines = tuple(items)
    if not lines:
        raise ValidationRefused("provision request has no items")
    for index, item in enumerate(lines):
        if not 0 <= item.quantity <= MAX_QUANTITY:
            where = f'item {index} (SKU "{item.sku}", service "{item.service_name}")'
            raise ValidationRefused(f"{where} quantity {item.quantity} out of range [0, {MAX_QUANTITY}]")
    total = sum(item.quantity for item in lines)
    if total > MAX_QUANTITY:
        raise ValidationRefused(f"total quantity {total} out of range [0, {MAX_QUANTITY}]")
    unnamed = sum(not item.service_name for item in lines)
    if unnamed == 0:
        return lines
    if unnamed < len(lines):
        text = f"mixed service_name presence across items (got {len(lines) - unnamed} named, {unnamed} unnamed)"
        raise ValidationRefused(text, validation_code=INVALID_MANIFEST)
    if len(lines) > 1:
        text = f"legacy single-service form requires exactly 1 item; got {len(lines)}"
        raise ValidationRefused(text, validation_code=INVALID_MANIFEST)
    only = lines[0]
    return (LeaseItem(only.sku, only.quantity, DEFAULT_SERVICE, only.custom_domain),)
