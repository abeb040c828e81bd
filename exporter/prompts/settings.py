"""Which tokenizer and chat template a model has, by path: nothing is ever downloaded."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

# The tokenizer of every model that has none of its own.
ANY_MODEL = "*"


class TokenizerSettings(BaseModel):
    """Files of one model, as they lie beside its weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokenizer: Path = Field(description="tokenizer.json, or the folder it is in")
    chat_template: Path | None = Field(
        None,
        description="chat_template.jinja or tokenizer_config.json; looked for beside the tokenizer",
    )


class PromptSettings(BaseModel):
    """How prompts in log rows become chains. They are written nowhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokenizers: dict[str, TokenizerSettings] = Field(
        default_factory=dict, description="by model as rows name it; * is every other model"
    )
    text_chunks: bool = Field(
        True, description="name prompts without token ids by chunks of their text (approximate)"
    )
