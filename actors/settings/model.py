"""All settings of the library; `config/reference.toml` is generated from their docstrings.

Settings are named after Spark's keys, so that Spark users find them. A value comes from the constructor, else from the
environment (`EXECUTOR_PODS_EXECUTOR__INSTANCES`), else from a TOML file, else from its default. All problems are found
at once and raised as one `SettingsError`, one line each: a fleet never starts on half a configuration. Settings never
change: all models are frozen.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypedDict

from pydantic import Field, ValidationError

from actors.errors import SettingsError
from actors.pods.pod import DEFAULT_PROFILE
from actors.pods.state import PodRules
from actors.runtime import Entropy
from actors.settings.durations import format_duration
from actors.settings.groups import (
    AllocationSettings,
    ApiSettings,
    BackendSettings,
    ExecutorSettings,
    RollSettings,
    SourceSettings,
    StoreSettings,
)
from actors.settings.loading import has_variables, is_given, merged, pod_ip, read_file, variables
from actors.settings.problems import from_validation, unknown
from actors.settings.profiles import ProfileSettings
from actors.settings.types import (
    LONGEST_DNS_LABEL,
    Address,
    Consistent,
    DnsLabel,
    FromJson,
    Group,
    PodName,
    ProfileName,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta
    from os import PathLike
    from typing import Unpack

    from actors.pods.loss_kind import LossKind
    from actors.settings.values import (
        AllocationValues,
        ApiValues,
        BackendValues,
        ExecutorValues,
        ProfileValues,
        RollValues,
        SourceValues,
        StoreValues,
    )

__all__ = [
    "Settings",
    "SettingsValues",
    "setting_names",
]

_LONGEST_PREFIX: Final = LONGEST_DNS_LABEL - len("-exec-999999999")
"""A pod's name is also its host name: it must be a DNS label, up to the thousand-millionth executor."""


def _generated_app_id(entropy: Entropy | None = None) -> str:
    return f"fleet-{(entropy or Entropy()).token(6)}"


def _from_environment(settings: type[Settings]) -> dict[str, Any]:
    if not has_variables():
        return {}
    from actors.settings.environment import Environment  # noqa: PLC0415 - pydantic-settings takes long to import

    return Environment(settings).values()


class SettingsValues(TypedDict, total=False):
    """What `Settings` is made from: the keyword arguments of its constructor, for type checkers and editors."""

    app_id: str
    namespace: str | None
    driver_pod_name: str | None
    driver_address: str | None
    executor: ExecutorSettings | ExecutorValues
    allocation: AllocationSettings | AllocationValues
    source: SourceSettings | SourceValues
    store: StoreSettings | StoreValues
    backend: BackendSettings | BackendValues
    api: ApiSettings | ApiValues
    roll: RollSettings | RollValues
    profiles: Mapping[str, ProfileSettings | ProfileValues]


class Settings(Consistent):
    """All settings. Raises `SettingsError`, which names every problem, if any value is wrong."""

    app_id: DnsLabel = Field(default_factory=_generated_app_id, examples=["etl"])
    """Identifies this fleet's pods among others in the namespace. Generated for each Backend unless set. Set it, so
    that a restarted driver finds its executors again.

    Spark: `spark.app.id`.
    """
    namespace: DnsLabel | None = Field(default=None, examples=["batch"])
    """Namespace of the pods. Without it: the namespace of the kubeconfig's context, or of the driver's own pod.

    Spark: `spark.kubernetes.namespace`.
    """
    driver_pod_name: PodName | None = Field(default=None, examples=["etl-driver"])
    """Name of the driver's own pod. It becomes the owner of the executors, so that they never outlive it, unless
    `executor.owned_by` says otherwise.

    Spark: `spark.kubernetes.driver.pod.name`.
    """
    driver_address: Address | None = Field(default=None, examples=["etl-driver.batch.svc:7077"])
    """Where executors reach the driver. They get it as DRIVER_ADDRESS in their environment. A port alone, such as
    ":7077", is completed with the IP of the driver's pod, an IPv6 address in brackets. Without it: that IP alone. The
    driver knows the IP if its environment has it as POD_IP (downward API: `status.podIP`).

    Spark: `spark.driver.host`, `spark.driver.port`.
    """
    executor: ExecutorSettings = ExecutorSettings()
    allocation: AllocationSettings = AllocationSettings()
    source: SourceSettings = SourceSettings()
    store: StoreSettings = StoreSettings()
    backend: BackendSettings = BackendSettings()
    api: ApiSettings = ApiSettings()
    roll: RollSettings = RollSettings()
    profiles: Annotated[dict[ProfileName, ProfileSettings], FromJson] = Field(default_factory=dict)
    """More pod shapes by name, each with its own target. The profile "default" is the one that `executor` describes. A
    profile inherits from `executor` what it does not set; a map or list that it sets replaces that of `executor`.

    EXECUTOR_PODS_PROFILES__LARGE__INSTANCES=4 sets one value; EXECUTOR_PODS_PROFILES sets all of them, as JSON.
    """

    def __init__(self, **values: Unpack[SettingsValues]) -> None:
        self._fill({**values}, {})

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None, **overrides: Unpack[SettingsValues]) -> Self:
        """Load settings from a TOML file. The environment overrides it, and `overrides` override both.

        Raises:
            SettingsError: the file cannot be read, is not TOML, or some value is wrong.
        """
        loaded = cls.__new__(cls)
        loaded._fill({**overrides}, {} if path is None else read_file(Path(path)))  # noqa: SLF001 - its own
        return loaded

    def _fill(self, arguments: dict[str, Any], file: Mapping[str, Any]) -> None:
        """Initialize from the arguments, else from the environment, else from the file."""
        found = dict(variables())
        problems = [
            f"{unknown(name, setting_names())} (from the environment: {variable})"
            for name, variable in found.items()
            if name.partition(".")[0] not in type(self).model_fields
        ]
        try:
            super().__init__(**merged(arguments, merged(_from_environment(type(self)), file)))
        except ValidationError as error:
            origins = {name: variable for name, variable in found.items() if not is_given(name, arguments)}
            problems += from_validation(error, setting_names(), variables=origins).problems
        except SettingsError as error:
            problems.append(str(error))
        except RecursionError:
            problems.append("some value is nested too deeply")
        if problems:
            raise SettingsError("\n".join(problems))

    @property
    def profile_names(self) -> tuple[str, ...]:
        """All profiles, the default one first."""
        return (DEFAULT_PROFILE, *self.profiles)

    def profile(self, name: str) -> ProfileSettings:
        """Return a profile with all its settings: what it does not set is inherited from `executor`.

        Raises:
            KeyError: there is no such profile.
        """
        if name == DEFAULT_PROFILE:
            numbers = {name: getattr(self.executor, name) for name in ProfileSettings.OWN}
            return ProfileSettings.model_validate(numbers).over(self.executor)
        own = self.profiles[name]
        full = own.over(self.executor)
        if full.on_oom is None or full.on_oom.profile is None or own.sets("on_oom"):
            return full
        return full.model_copy(update={"on_oom": None})

    def drain_timeout(self, profile: str) -> timedelta | None:
        """Return how long executors of a profile may drain; None if they do not, or if there is no such profile."""
        return self.profile(profile).drain_timeout if profile in self.profile_names else None

    def replaced(self, profile: str) -> frozenset[LossKind] | None:
        """Return the loss kinds after which executors of a profile are replaced; None means all."""
        rule = self.profile(profile).replace
        return None if rule == "always" else frozenset() if rule == "never" else frozenset(rule)

    @property
    def draining(self) -> frozenset[str]:
        """The profiles whose pods pause before SIGTERM."""
        return frozenset(name for name in self.profile_names if self.drain_timeout(name) is not None)

    @property
    def initial_totals(self) -> dict[str, int]:
        """How many executors of each profile the fleet starts with."""
        return {name: self.profile(name).start for name in self.profile_names}

    @property
    def pools(self) -> dict[str, ProfileSettings]:
        """The profiles whose executors are leased."""
        return {name: self.profile(name) for name in self.pool_names}

    @property
    def pool_names(self) -> tuple[str, ...]:
        """The names of the profiles whose executors are leased."""
        own = {DEFAULT_PROFILE: self.executor, **self.profiles}
        return tuple(name for name, shape in own.items() if shape.warm is not None)

    @property
    def app_id_given(self) -> bool:
        """Whether the user set the `app_id`, so that another driver may have the same."""
        return "app_id" in self.model_fields_set

    def for_one_backend(self, entropy: Entropy | None = None) -> Self:
        """Return these settings as one Backend uses them.

        The `app_id` is another generated one unless it was set, for two Backends share no fleet. The `driver_address`
        is completed with the pod's IP.

        Raises:
            SettingsError: the `driver_address` is a port, and the pod's IP is not known.
        """
        own = self.model_copy(update={"driver_address": self._full_driver_address()})
        if self.app_id_given:
            return own
        return own.of_fleet(_generated_app_id(entropy))

    def of_fleet(self, app_id: str) -> Self:
        """Return these settings with the generated `app_id` of a fleet; with their own if it was set."""
        if self.app_id_given:
            return self
        own = self.model_copy(update={"app_id": app_id})
        own.model_fields_set.discard("app_id")
        return own

    def with_default_image(self, image: str) -> Self:
        """Return these settings, with this image for the executors unless an image or a pod template is set."""
        if self.executor.image is not None or self.executor.pod_template is not None:
            return self
        return self.model_copy(update={"executor": self.executor.model_copy(update={"image": image})})

    def _full_driver_address(self) -> str | None:
        address, ip = self.driver_address, pod_ip()
        if address is None:
            return ip
        if not address.startswith(":"):
            return address
        if ip is None:
            raise SettingsError(
                f"driver_address = {address!r}: needs the IP of the driver's pod in the environment, as POD_IP "
                "(downward API: status.podIP), or a host before the port"
            )
        return f"[{ip}]{address}" if ":" in ip else f"{ip}{address}"

    @property
    def uses_lease(self) -> bool:
        """Whether a Lease guards the `app_id`."""
        return self.app_id_given if self.backend.lease == "auto" else self.backend.lease

    @property
    def records_events(self) -> bool:
        """Whether Kubernetes Events are written: there must be an object that they are about."""
        return self.backend.kubernetes_events and (self.driver_pod_name is not None or self.uses_lease)

    @property
    def pod_prefix(self) -> str:
        """The prefix of pod names."""
        return self.executor.prefix or self.app_id

    @property
    def pod_rules(self) -> PodRules:
        """The settings that decide whether a pod is an executor's, and its state."""
        return PodRules(
            executor_container=self.executor.container,
            check_all_containers=self.executor.check_all_containers,
            app_id=self.app_id,
        )

    def _contradictions(self) -> Iterator[str]:
        if len(self.pod_prefix) > _LONGEST_PREFIX:
            name = "executor.prefix" if self.executor.prefix else "app_id"
            remedy = "" if self.executor.prefix else ", or executor.prefix be set"
            yield (
                f"{name} = {self.pod_prefix!r}: must be at most {_LONGEST_PREFIX} characters, "
                f'so that pod names ("<prefix>-exec-<id>") stay DNS labels{remedy}'
            )
        for name, interval in (
            ("executor.event_processing_interval", self.executor.event_processing_interval),
            ("allocation.batch_delay", self.allocation.batch_delay),
        ):
            if self.store.min_round_interval > interval:
                yield (
                    f"store.min_round_interval = {format_duration(self.store.min_round_interval)}: "
                    f"must be at most {name} ({format_duration(interval)})"
                )
        if self.uses_lease and self.backend.request_timeout >= self.backend.lease_duration:
            yield (
                f"backend.lease_duration = {format_duration(self.backend.lease_duration)}: must be longer than "
                f"backend.request_timeout ({format_duration(self.backend.request_timeout)}): "
                "a renewal that is not answered must not outlast the Lease"
            )
        if self.backend.hands_over and not self.app_id_given:
            yield 'backend.on_sigterm = "hand-over": needs app_id, by which the next driver finds the executors'
        if self.backend.hands_over and self.driver_pod_name is not None and self.executor.owned_by == "driver":
            yield (
                'backend.on_sigterm = "hand-over": needs executor.owned_by = "controller", or no driver_pod_name: '
                "Kubernetes deletes the executors with the driver's pod that owns them"
            )
        if self.executor.wait_to_reuse_claim and self.driver_pod_name is None:
            yield "executor.wait_to_reuse_claim = true: needs driver_pod_name, the pod that owns the claims"
        for name in self.profile_names:
            yield from self._on_oom_problems(name)
        most, start = self.allocation.max_created, self.initial_totals
        if most is not None and sum(start.values()) > most:
            given = " + ".join(f"{self._size_of(name)} ({count})" for name, count in start.items() if count)
            yield f"allocation.max_created = {most}: must be at least what the fleet starts with: {given}"

    def _size_of(self, name: str) -> str:
        """Return the setting that says how many executors of a profile the fleet starts with."""
        return f"{_of(name)}.{'warm' if name in self.pool_names else 'instances'}"

    def _on_oom_problems(self, name: str) -> Iterator[str]:
        """Yield if the profile that `on_oom` gives does not exist, or leads back to this one."""
        chain = [name]
        while (rule := self.profile(chain[-1]).on_oom) is not None and rule.profile is not None:
            if rule.profile not in self.profile_names:
                if len(chain) == 1:
                    where, there_are = f"{_of(name)}.on_oom", ", ".join(self.profile_names)
                    yield f"{where}.profile = {rule.profile!r}: there is no such profile; there are {there_are}"
                return
            circle = rule.profile in chain
            chain.append(rule.profile)
            if circle:
                if rule.profile == name:
                    yield f"{_of(name)}.on_oom: leads back to its own profile: {' → '.join(chain)}"
                return


def _of(profile: str) -> str:
    """Return the group of settings that describes a profile."""
    return "executor" if profile == DEFAULT_PROFILE else f"profiles.{profile}"


def setting_names() -> list[str]:
    """Return the dotted name of every setting, in the order of this file."""
    names: list[str] = []
    for name, field in Settings.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, Group):
            names.extend(f"{name}.{inner}" for inner in group.model_fields)
        else:
            names.append(name)
    return names
