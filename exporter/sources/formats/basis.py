"""Whether a row's prompt count includes cached tokens, decided row by row and recorded.

The step `counted` of the careful reading. The quick one takes only rows that need no decision.
"""

from exporter.sources.formats.mapping import Basis

# Without any cache counter the count of a provider that leaves cached tokens out of the prompt
# says nothing of the whole prompt; nor does a count of which nobody says who counted.
NOBODY_KNOWS = """(coalesce(provider, model) IS NULL
    OR regexp_matches(concat_ws(' ', provider, model), '(?i)anthropic|claude|bedrock'))"""

_ASIDE = "(coalesce(stated_cached, 0) + written)"
# A total that has no room for cached and written tokens beside the prompt.
_INCLUSIVE_AFTER_ALL = f"""coalesce(total_tokens - output_tokens = prompt_tokens
    AND {_ASIDE} BETWEEN 1 AND prompt_tokens, false)"""


def counted(basis: Basis) -> str:
    """Prompt tokens made inclusive, cached tokens made possible, and how that was decided.

    More cached than prompt: an excess of at most a block or 2 % is counting noise and capped.
    More than that is impossible where the format is inclusive by specification, and proves
    that cached tokens are beside the prompt where it only usually is. An exclusive format that
    states a total can be disproved by it.
    """
    beside = {
        "inclusive": "false",
        "assumed": f"""coalesce(stated_cached > prompt_tokens AND NOT within_tolerance, false)
            OR coalesce({_ASIDE} > 0 AND total_tokens - output_tokens = prompt_tokens + {_ASIDE},
                false)""",
        "exclusive": f"""coalesce(stated_cached, cache_write_tokens) IS NOT NULL
            AND NOT ({_INCLUSIVE_AFTER_ALL})""",
    }[basis]
    otherwise = {
        "inclusive": "'inclusive'",
        "assumed": f"""CASE WHEN convention IS NOT NULL THEN 'inclusive'
            WHEN coalesce(stated_cached, cache_write_tokens) IS NULL
                AND {NOBODY_KNOWS} THEN 'unknown'
            WHEN total_tokens - output_tokens = prompt_tokens THEN 'inclusive'
            ELSE 'assumed' END""",
        "exclusive": f"CASE WHEN {_INCLUSIVE_AFTER_ALL} THEN 'inclusive' ELSE 'unknown' END",
    }[basis]
    return f"""
    SELECT * EXCLUDE (prompt_tokens, cached_tokens), prompt_tokens AS stated_prompt,
        nullif(CASE WHEN beside THEN prompt_tokens + coalesce(stated_cached, 0) + written
            ELSE prompt_tokens END, 0) AS prompt_tokens,
        CASE WHEN beside THEN stated_cached
            WHEN prompt_tokens > 0 AND within_tolerance THEN least(stated_cached, prompt_tokens)
            END AS cached_tokens,
        CASE WHEN beside THEN 'exclusive' ELSE {otherwise} END AS prompt_basis
    FROM (SELECT *, {beside} AS beside FROM <input>)"""
