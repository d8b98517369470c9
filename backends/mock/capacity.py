"""What the mock has room for: SKUs with their sizes, totals, and what is reserved of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backends.agent_contract import DemoteExceedsTier
from backends.contract import UNKNOWN_SKU, InsufficientResources, LeaseItem, LoadStats, ValidationRefused


@dataclass(frozen=True, slots=True)
class Tier:
    """One instance of a SKU: cores, MiB of memory and of disk, and how much of its disk a workload is taken to fill."""

    cpu: float = 1.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    data_mb: float = 0.0


class Need(NamedTuple):
    """What a lease reserves."""

    cpu: float = 0.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    instances: int = 0


@dataclass(slots=True)
class Room:
    """Totals and reservations. A total of 0 is not tracked: it refuses nothing. Without tiers every SKU is known."""

    tiers: Mapping[str, Tier] = field(default_factory=dict)
    cpu: float = 0.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    default_tier: Tier = field(default_factory=Tier)
    is_held: bool = False
    used_cpu: float = 0.0
    used_memory_mb: float = 0.0
    used_disk_mb: float = 0.0
    instances: int = 0

    def need(self, items: Iterable[LeaseItem]) -> Need:
        """What these items reserve. Raises `ValidationRefused` for a SKU that is not in the table."""
        if not self.tiers:
            count = sum([item.quantity for item in items])
            tier = self.default_tier
            return Need(tier.cpu * count, tier.memory_mb * count, tier.disk_mb * count, count)
        cpu = memory = disk = 0.0
        instances = 0
        for item in items:
            tier = self._tier(item.sku)
            cpu += tier.cpu * item.quantity
            memory += tier.memory_mb * item.quantity
            disk += tier.disk_mb * item.quantity
            instances += item.quantity
        return Need(cpu, memory, disk, instances)

    def admit(self, need: Need, *, instead_of: Need | None = None) -> None:
        """Raise `InsufficientResources` unless there is room, also by what stands in for it is given back."""
        if not (self.is_held or self.cpu or self.memory_mb or self.disk_mb):
            return
        back = instead_of or Need()
        if self.is_held:
            raise InsufficientResources("insufficient resources: admission is on hold")
        for total, used, wanted, noun, unit in (
            (self.cpu, self.used_cpu - back.cpu, need.cpu, "CPU", "cores"),
            (self.memory_mb, self.used_memory_mb - back.memory_mb, need.memory_mb, "memory", "MB"),
            (self.disk_mb, self.used_disk_mb - back.disk_mb, need.disk_mb, "disk", "MB"),
        ):
            if total > 0 and used + wanted > total:
                lacks = f"insufficient {noun}: need {wanted:.2f} {unit}, have {max(0.0, total - used):.2f} available"
                raise InsufficientResources(f"insufficient resources: {lacks}")

    def take(self, need: Need) -> None:
        """Reserve this."""
        cpu, memory_mb, disk_mb, instances = need
        self.used_cpu += cpu
        self.used_memory_mb += memory_mb
        self.used_disk_mb += disk_mb
        self.instances += instances

    def give_back(self, need: Need) -> None:
        """Reserve it no more."""
        self.take(Need(-need.cpu, -need.memory_mb, -need.disk_mb, -need.instances))

    def fits_data(self, kept: Iterable[LeaseItem], wanted: Iterable[LeaseItem]) -> None:
        """Raise `DemoteExceedsTier` where the data a kept service has written exceed the disk that is asked for."""
        data = {item.service_name: self._tier(item.sku) for item in kept}
        for item in wanted:
            tier, before = self._tier(item.sku), data[item.service_name]
            if tier.disk_mb < before.disk_mb and before.data_mb > tier.disk_mb:
                size = f"service {item.service_name}: {before.data_mb:.0f} MB of data, {tier.disk_mb:.0f} MB of disk"
                raise DemoteExceedsTier(f"{DemoteExceedsTier.text}: {size}")

    def stats(self) -> LoadStats:
        """The load; zeros, no usable signal, while the cores are not tracked."""
        if self.cpu <= 0:
            return LoadStats(active_containers=self.instances)
        return LoadStats(
            total_cpu_cores=self.cpu,
            allocated_cpu_cores=self.used_cpu,
            available_cpu_cores=self.cpu - self.used_cpu,
            total_memory_mb=self.memory_mb,
            allocated_memory_mb=self.used_memory_mb,
            available_memory_mb=self.memory_mb - self.used_memory_mb,
            total_disk_mb=self.disk_mb,
            allocated_disk_mb=self.used_disk_mb,
            available_disk_mb=max(0.0, self.disk_mb - self.used_disk_mb),
            active_containers=self.instances,
        )

    def _tier(self, sku: str) -> Tier:
        if not self.tiers:
            return self.default_tier
        tier = self.tiers.get(sku)
        if tier is None:
            raise ValidationRefused(f"validation error: unknown SKU: {sku}", validation_code=UNKNOWN_SKU)
        return tier
