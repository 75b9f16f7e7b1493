"""The agent's platforms: which a home has switched on, and where their home channel is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store.errors import Negative, NotFound
from hermes_tools.store.home import config, environment, setting
from hermes_tools.store.keys import NO
from hermes_tools.store.resets import gateway_json

# Platform → the variables that switch it on, all of them together; alternatives one by one.
SWITCHES: dict[str, tuple[tuple[str, ...], ...]] = {
    "telegram": (("TELEGRAM_BOT_TOKEN",),),
    "discord": (("DISCORD_BOT_TOKEN",),),
    "slack": (("SLACK_BOT_TOKEN",),),
    "mattermost": (("MATTERMOST_TOKEN",),),
    "matrix": (("MATRIX_ACCESS_TOKEN",), ("MATRIX_HOMESERVER", "MATRIX_PASSWORD")),
    "email": (("EMAIL_ADDRESS", "EMAIL_PASSWORD", "EMAIL_SMTP_HOST"),),
    "sms": (("TWILIO_ACCOUNT_SID",),),
    "signal": (("SIGNAL_HTTP_URL", "SIGNAL_ACCOUNT"),),
    "whatsapp": (("WHATSAPP_ENABLED",),),
    "whatsapp_cloud": (("WHATSAPP_CLOUD_ACCESS_TOKEN", "WHATSAPP_CLOUD_PHONE_NUMBER_ID"),),
    "homeassistant": (("HASS_TOKEN",),),
    "webhook": (("WEBHOOK_ENABLED",),),
    "msgraph_webhook": (("MSGRAPH_WEBHOOK_ENABLED",),),
    "dingtalk": (("DINGTALK_CLIENT_ID", "DINGTALK_CLIENT_SECRET"),),
    "feishu": (("FEISHU_APP_ID", "FEISHU_APP_SECRET"),),
    "wecom": (("WECOM_BOT_ID",),),
    "wecom_callback": (("WECOM_CALLBACK_CORP_ID", "WECOM_CALLBACK_CORP_SECRET"),),
    "weixin": (("WEIXIN_TOKEN",), ("WEIXIN_ACCOUNT_ID",)),
    "bluebubbles": (("BLUEBUBBLES_SERVER_URL", "BLUEBUBBLES_PASSWORD"),),
    "qqbot": (("QQ_APP_ID", "QQ_CLIENT_SECRET"),),
    "yuanbao": (("YUANBAO_APP_ID", "YUANBAO_APP_SECRET"), ("YUANBAO_APP_KEY",)),
    "line": (("LINE_CHANNEL_ACCESS_TOKEN", "LINE_CHANNEL_SECRET"),),
    "ntfy": (("NTFY_TOPIC",),),
    "irc": (("IRC_SERVER", "IRC_CHANNEL"),),
    "teams": (("TEAMS_CLIENT_ID", "TEAMS_CLIENT_SECRET"),),
    "google_chat": (("GOOGLE_CHAT_PROJECT_ID",),),
    "simplex": (("SIMPLEX_WS_URL",),),
}
# Where the variable of the home channel is not PLATFORM_HOME_CHANNEL.
HOMES = {"matrix": "MATRIX_HOME_ROOM", "email": "EMAIL_HOME_ADDRESS"}


@dataclass(frozen=True)
class Channel:
    """A home channel: where a platform's handoffs go."""

    platform: str
    chat_id: str
    name: str | None = None
    thread_id: str | None = None


class Platforms:
    """What config.yaml, gateway.json, .env and the environment of a home say of platforms."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = environment(home)
        self.config = config(home)
        self.sections: dict[str, dict[str, Any]] = {}
        for found in (
            gateway_json(home).get("platforms"),
            setting(self.config, "gateway.platforms"),
            self.config.get("platforms"),
        ):
            if isinstance(found, dict):
                for name, section in found.items():
                    if isinstance(section, dict):
                        known = self.sections.setdefault(str(name).lower(), {})
                        known.update(section)

    def known(self) -> list[str]:
        """Every name that makes sense here."""
        return sorted({*SWITCHES, *self.sections})

    def enabled(self, platform: str) -> bool:
        """Whether a platform is switched on: by its variables or its section, and not off there."""
        section = self.sections.get(platform, {})
        if "enabled" in section:
            return str(section["enabled"]).lower() not in NO
        return any(
            all(self.env.get(name, "").lower() not in NO for name in names)
            for names in SWITCHES.get(platform, ())
        )

    def home_channel(self, platform: str) -> Channel | None:
        """A platform's home channel; variables win over sections."""
        name = HOMES.get(platform, f"{platform.upper()}_HOME_CHANNEL")
        for variables in (self.env, self.config):
            chat = variables.get(name)
            if isinstance(chat, str | int) and str(chat).strip():
                thread = variables.get(f"{name}_THREAD_ID") or variables.get(
                    f"{platform.upper()}_HOME_CHANNEL_THREAD_ID"
                )
                return Channel(
                    platform, str(chat).strip(), _text(variables.get(f"{name}_NAME")),
                    _text(thread),
                )  # fmt: skip
        section = self.sections.get(platform, {}).get("home_channel")
        if isinstance(section, Mapping) and _text(section.get("chat_id")):
            return Channel(
                platform, str(section["chat_id"]), _text(section.get("name")),
                _text(section.get("thread_id")),
            )  # fmt: skip
        return None

    def require(self, platform: str) -> Channel:
        """The home channel of a platform that may take a handoff. Raises NotFound (an unknown
        name) and Negative (switched off, no home channel).
        """
        platform = platform.strip().lower()
        if platform not in self.known():
            on = [name for name in self.known() if self.enabled(name)]
            raise NotFound(
                f"platform {platform!r}: the agent has none of that name; "
                f"enabled here: {', '.join(on) or 'none'}"
            )
        if not self.enabled(platform):
            raise Negative(
                f"platform {platform}: not enabled in {self.home}; "
                "`hermes gateway setup` sets it up"
            )
        found = self.home_channel(platform)
        if found is None:
            raise Negative(
                f"platform {platform}: it has no home channel; send /sethome in the chat "
                "that is to be it"
            )
        return found


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and str(value).strip() else None
