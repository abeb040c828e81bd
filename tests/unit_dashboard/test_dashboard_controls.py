"""What clicks inside charts and tables do to the address (the test API cannot click there)."""

from streamlit.testing.v1 import AppTest


def _drill() -> None:
    import streamlit as st

    from dashboard.controls import drill

    st.button("go", on_click=drill, args=("route", "template", "<b>chat"))


def test_a_clicked_row_becomes_a_filter_and_the_next_dimension() -> None:
    app = AppTest.from_function(_drill, default_timeout=180)
    app.query_params["range"] = "24h"
    app.query_params["by"] = "route"
    app.query_params["requests"] = "ts"
    app.run().button[0].click().run()
    assert dict(app.query_params) == {
        "range": "24h", "route": "<b>chat", "by": "template", "requests": "ts",
    }  # fmt: skip


def _brush() -> None:
    import streamlit as st

    from dashboard.controls import look_closer

    box = {"x": ["2026-11-29 22:04:18.0733", "2026-11-29 20:26:36.4722"]}
    st.session_state["chart"] = {"selection": {"box": [box]}}
    st.session_state["empty"] = {"selection": {"box": []}}
    st.button("go", on_click=look_closer, args=("chart",))
    st.button("nothing", on_click=look_closer, args=("empty",))


def test_a_time_dragged_over_becomes_the_window_in_whole_minutes() -> None:
    app = AppTest.from_function(_brush, default_timeout=180)
    app.query_params["range"] = "24h"
    app.query_params["tenant"] = "a"
    app.run().button[1].click().run()
    assert dict(app.query_params) == {"range": "24h", "tenant": "a"}
    app.button[0].click().run()
    assert dict(app.query_params) == {
        "since": "2026-11-29T20:26:00Z", "until": "2026-11-29T22:05:00Z", "tenant": "a",
    }  # fmt: skip


def _ends() -> None:
    import streamlit as st

    from dashboard.controls import filter_bar

    filter_bar()
    st.caption("drawn")


def test_fixed_ends_with_seconds_are_shown_and_kept() -> None:
    app = AppTest.from_function(_ends, default_timeout=180)
    app.query_params["since"] = "2026-11-29T20:26:30Z"
    app.query_params["until"] = "2026-11-29T22:05:01Z"
    app.run()
    assert not app.exception
    assert dict(app.query_params) == {
        "since": "2026-11-29T20:26:30Z", "until": "2026-11-29T22:05:01Z",
    }  # fmt: skip
    shown = [app.datetime_input(key=key).value for key in ("since", "until")]
    assert [f"{end:%H:%M:%S}" for end in shown] == ["20:26:00", "22:06:00"]
