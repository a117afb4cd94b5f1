//! Chat templates: their variables and functions, the formatting of values, and typed errors.

use diptych::chat::{ChatError, ChatInput, ChatTemplate, Message, ToolCall};
use diptych::generate::Cancel;
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter};
use serde_json::json;
use std::time::{Duration, SystemTime};

fn render(source: &str, input: &ChatInput) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.with_token("bos_token", "<s>").with_token("eos_token", "</s>").render(input)
}

/// Returns the value of an expression.
fn value(expression: &str) -> String {
    render(&format!("{{{{ {expression} }}}}"), &ChatInput::default())
        .unwrap_or_else(|e| panic!("{expression}: {e}"))
}

fn conversation() -> ChatInput {
    ChatInput::new([
        Message::system("Be brief."),
        Message::user("  What is 2+2?\n"),
        Message::assistant("4"),
        Message::user("<b> & \"ü\""),
    ])
}

const TURNS: &str = "\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'system') and not loop.first %}
        {{- raise_exception('the system message comes first, not at ' ~ loop.index) }}
    {%- endif %}
    {{- '[' + message['role'] + ']' + message.content | trim }}
    {%- if message.role == 'assistant' %}{{ eos_token }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
{%- endif %}
";

#[test]
fn a_conversation_becomes_text() {
    let input = conversation();
    let want = "<s>[system]Be brief.[user]What is 2+2?[assistant]4</s>[user]<b> & \"ü\"[assistant]";
    assert_eq!(render(TURNS, &input).unwrap(), want);
    let ends = render(TURNS, &input.generation_prompt(false)).unwrap();
    assert_eq!(ends, want.strip_suffix("[assistant]").unwrap());
    assert_eq!(render(TURNS, &ChatInput::default()).unwrap(), "<s>");
}

#[test]
fn variables_tools_and_fields_are_seen() {
    let source = "{{ style }}|{{ thinking is false }}|{{ tools[0].name }}|{{ messages[0].mood }}|{{ documents is none }}";
    let input = ChatInput::new([Message::user("x").with("mood", &"calm")])
        .with("style", &"plain")
        .with("style", &"fancy")
        .with("thinking", &false)
        .with_tools(&[json!({"name": "clock"})]);
    assert_eq!(render(source, &input).unwrap(), "fancy|True|clock|calm|True");
    assert_eq!(
        render("{{ tools is none }}{{ style is defined }}", &ChatInput::default()).unwrap(),
        "TrueFalse"
    );
    // A variable of the caller overrides a token of the model.
    assert_eq!(render("{{ bos_token }}", &ChatInput::default().with("bos_token", &"^")).unwrap(), "^");
    let replaced = Message::user("x").with("content", &json!([{"type": "text", "text": "part"}]));
    assert_eq!(replaced.role(), "user");
    assert_eq!(render("{{ messages[0].content[0].text }}", &ChatInput::new([replaced])).unwrap(), "part");
}

#[test]
fn tool_calls_and_answers() {
    let source = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.type }} {{ c.id }} {{ c.function.name }}\
        {{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %} -> {{ m.name }}/{{ m.tool_call_id }}: \
        {{ m.content }}{% endif %}{% endfor %}";
    let call = ToolCall::new(Some("c1"), "weather", json!({"city": "Città"}));
    let input = ChatInput::new([
        Message::assistant("").with_tool_calls(&[call]),
        Message::tool("c1", "weather", "21"),
    ]);
    assert_eq!(render(source, &input).unwrap(), "function c1 weather{\"city\": \"Città\"} -> weather/c1: 21");
}

#[test]
fn json_input_keeps_its_order() {
    let input = ChatInput::from_json(
        r#"{"messages": [{"role": "user", "content": "hi", "zeta": 1, "alpha": 2}],
            "tools": [{"name": "b", "arguments": {"z": 1, "a": [1.50, null, true]}}], "mood": "calm"}"#,
    )
    .unwrap();
    assert!(!input.add_generation_prompt);
    let source = "{{ tools[0] | tojson }}{{ messages[0] | list | join(',') }} {{ mood }}";
    let want = r#"{"name": "b", "arguments": {"z": 1, "a": [1.5, null, true]}}role,content,zeta,alpha calm"#;
    assert_eq!(render(source, &input).unwrap(), want);
    for bad in ["", "[]", "{}", r#"{"messages": [{"content": "x"}]}"#, r#"{"messages": [{"role": 1}]}"#] {
        assert!(matches!(ChatInput::from_json(bad), Err(ChatError::Input { .. })), "{bad}");
    }
}

#[test]
fn blocks_are_trimmed_as_for_training() {
    let source =
        "  {% if true %}\n  one\n  {% endif %}\n{# gone #}\ntwo\r\n  {%+ if true %} three{% endif %}\n\n";
    assert_eq!(render(source, &ChatInput::default()).unwrap(), "  one\ntwo\n   three");
    let marked = "{% generation %}a{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}";
    assert_eq!(render(marked, &ChatInput::default()).unwrap(), "aFalse");
}

#[test]
fn statements_of_templates() {
    for (source, want) in [
        (
            "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        ),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}\
          {% endfor %}",
            "023",
        ),
        ("{% macro f(a, b='x') %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}", "1x23"),
        (
            "{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{{ ',' if not loop.last }}{% endfor %}",
            "b1,a2",
        ),
        (
            "{% for m in messages[1:] if m.role == 'user' %}{{ loop.index0 }}{{ m.role }} {% else %}-{% endfor %}",
            "-",
        ),
        ("{% set x %}<{{ 1 }}>{% endset %}{{ x | length }}", "3"),
    ] {
        assert_eq!(render(source, &ChatInput::default()).unwrap(), want, "{source}");
    }
}

#[test]
fn values_are_written_as_python_writes_them() {
    for (expression, want) in [
        ("true", "True"),
        ("none", "None"),
        ("[1, 'a', 2.0, none, (1,), {'k': \"it's\"}]", "[1, 'a', 2.0, None, (1,), {'k': \"it's\"}]"),
        ("['a\\n\\'\"', '\u{a0}']", "['a\\n\\'\"', '\\xa0']"),
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("1e-5", "1e-05"),
        ("0.0001", "0.0001"),
        ("7 / 2", "3.5"),
        ("-7 // 2", "-4"),
        ("2 ** 5", "32"),
        ("'a' ~ true ~ none ~ [1]", "aTrueNone[1]"),
        ("[1, 2] | string | length", "6"),
        ("missing", ""),
        ("missing | length", "0"),
    ] {
        assert_eq!(value(expression), want, "{expression}");
    }
}

#[test]
fn json_is_written_as_python_writes_it() {
    for (expression, want) in [
        ("{'b': [1, 2.0, none], 'a': 'é<\"\\n'} | tojson", r#"{"b": [1, 2.0, null], "a": "é<\"\n"}"#),
        ("{'b': 1, 'a': 2} | tojson(sort_keys=true)", r#"{"a": 2, "b": 1}"#),
        ("'é🦙' | tojson(ensure_ascii=true)", r#""\u00e9\ud83e\udd99""#),
        ("[1, {'a': []}] | tojson(separators=(',', ':'))", r#"[1,{"a":[]}]"#),
        ("[1, {'a': []}] | tojson(indent=2)", "[\n  1,\n  {\n    \"a\": []\n  }\n]"),
        ("{5: 2, none: 3, true: 4} | tojson", r#"{"5": 2, "null": 3, "true": 4}"#),
        ("[1e-7, 1e22] | tojson", "[1e-07, 1e+22]"),
    ] {
        assert_eq!(value(expression), want, "{expression}");
    }
}

#[test]
fn methods_of_python() {
    for (expression, want) in [
        ("' x '.strip() ~ 'xxaxx'.lstrip('x') ~ 'xxaxx'.rstrip('x')", "xaxxxxa"),
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("'a,b,c'.rsplit(',', maxsplit=1)", "['a,b', 'c']"),
        ("' a  b c '.split()", "['a', 'b', 'c']"),
        ("' a  b c '.split(none, 1)", "['a', 'b c ']"),
        ("' a  b c '.rsplit(none, 1)", "[' a  b', 'c']"),
        ("''.split() ~ ''.split(',')", "[]['']"),
        ("'a\\nb\\r\\n\\nc'.splitlines()", "['a', 'b', '', 'c']"),
        ("'a\\r\\nb'.splitlines(true)", "['a\\r\\n', 'b']"),
        ("'k=v=w'.partition('=') ~ 'k=v=w'.rpartition('=')", "('k', '=', 'v=w')('k=v', '=', 'w')"),
        ("'abc'.startswith('ab') ~ 'abc'.startswith(('x', 'a')) ~ 'abc'.endswith('b')", "TrueTrueFalse"),
        ("'aaa'.replace('a', 'b', 2) ~ 'aaa'.replace('a', '')", "bba"),
        ("'they\\'re BIG'.title() ~ 'hELLO'.capitalize() ~ 'aB'.swapcase()", "They'Re BigHelloAb"),
        ("'äbcabc'.find('c') ~ 'abcabc'.rfind('c') ~ 'abc'.find('z') ~ 'abcabc'.index('c', 3)", "25-15"),
        ("'abcabc'.count('bc') ~ 'aaa'.count('')", "24"),
        ("'abc'.removeprefix('a').removesuffix('c')", "b"),
        ("'-5'.zfill(4) ~ 'a'.ljust(3) ~ 'a'.rjust(3, '.') ~ 'ab'.center(5, '*')", "-005a  ..a**ab*"),
        ("'{}-{b}'.format(1, b='x') ~ '-'.join(['a', 'b'])", "1-xa-b"),
        (
            "'12'.isdigit() ~ ''.isdigit() ~ 'a1'.isalnum() ~ ' '.isspace() ~ 'AB'.isupper()",
            "TrueFalseTrueTrueTrue",
        ),
        ("{'a': 1}.get('a') ~ {'a': 1}.get('b') ~ {'a': 1}.get('b', 2)", "1None2"),
        (
            "{'b': 1, 'a': 2}.keys() | list ~ {'b': 1}.values() | list ~ {'b': 1}.items() | list",
            "['b', 'a'][1][('b', 1)]",
        ),
        // A key with the name of a method does not hide the method.
        ("{'items': 1}.items() | list ~ {'items': 1}['items']", "[('items', 1)]1"),
        ("[1, 2, 1].count(1) ~ [1, 2].index(2)", "21"),
        ("'x' | int ~ 'x' | int(7) ~ '0x1f' | int(base=16) ~ '12.7' | int ~ '1.5' | float", "0731121.5"),
        (
            "'s' is iterable ~ (messages[1:] is sequence) ~ (none is iterable) ~ (true is integer)",
            "TrueTrueFalseFalse",
        ),
    ] {
        assert_eq!(value(expression), want, "{expression}");
    }
}

#[test]
fn the_clock_can_be_set() {
    let mut input = ChatInput::default();
    input.now = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_718_452_800));
    // Noon in Greenwich, so that the date is the same from UTC-12 to UTC+11.
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", &input).unwrap(), "15 Jun 2024");
    let wrong = render("{{ strftime_now('%') }}", &input).unwrap_err();
    assert!(matches!(wrong, ChatError::Render { line: 1, .. }), "{wrong}");
    input.now = None;
    let year: i32 = render("{{ strftime_now('%Y') }}", &input).unwrap().parse().unwrap();
    assert!(year > 2024);
}

#[test]
fn errors_have_a_type_and_a_line() {
    let late = ChatInput::new([Message::user("x"), Message::system("y")]);
    let raised = render(TURNS, &late).unwrap_err();
    let text = "the system message comes first, not at 2".to_string();
    assert_eq!(raised, ChatError::Raised { line: 4, text });
    assert_eq!(raised.line(), Some(4));

    let in_macro = "{% macro f() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ f() }}";
    let raised = render(in_macro, &ChatInput::default()).unwrap_err();
    assert_eq!(raised, ChatError::Raised { line: 2, text: "no".to_string() });

    let input = ChatInput::default();
    for (source, at) in
        [("a\n{% if %}", 2), ("{{ 'open", 1), ("\n\n{% endfor %}", 3), ("{% for x in y %}", 1)]
    {
        let error = render(source, &input).unwrap_err();
        assert!(matches!(error, ChatError::Syntax { line, .. } if line == at), "{source}: {error:?}");
    }
    for source in ["\n{{ missing.field }}", "\n{{ [missing] | tojson }}", "\n{{ messages[9].role }}"] {
        let error = render(source, &input).unwrap_err();
        assert!(matches!(error, ChatError::Undefined { line: 2, .. }), "{source}: {error:?}");
    }
    for source in [
        "\n{{ 'a' + 1 }}",
        "\n{{ 'a'.nosuch() }}",
        "\n{{ 'a' | nosuch }}",
        "\n{{ [1].append(2) }}",
        "\n{{ 1 // 0 }}",
    ] {
        let error = render(source, &input).unwrap_err();
        assert!(matches!(error, ChatError::Render { line: 2, .. }), "{source}: {error:?}");
    }
    let shown =
        diptych::Error::from(render("{{ raise_exception('never') }}", &input).unwrap_err()).to_string();
    assert!(shown.contains("line 1") && shown.contains("never"), "{shown}");
}

/// Environment variable that is set in the child process with a memory limit; its value selects the template
/// to render.
#[cfg(target_os = "linux")]
const LIMITED: &str = "DIPTYCH_TEST_LIMITED";

/// Runs a test again in a child process with `kib` KiB of address space.
#[cfg(target_os = "linux")]
fn limited(test: &str, what: &str, kib: usize) {
    let run = std::process::Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("chat::{test}"), "--test-threads", "1"])
        .env(LIMITED, what)
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].concat();
    assert!(run.status.success(), "{what}: {}", String::from_utf8_lossy(&said));
}

/// With limited address space, as on systems without overcommit, an ordinary conversation renders.
#[cfg(target_os = "linux")]
#[test]
fn a_conversation_renders_where_address_space_is_scarce() {
    if std::env::var_os(LIMITED).is_none() {
        return limited("a_conversation_renders_where_address_space_is_scarce", "", 700_000);
    }
    assert!(render(TURNS, &conversation()).is_ok());
    let long = "{% for a in range(900) %}{% for b in range(900) %}{{ a }}{% endfor %}{% endfor %}";
    let error = render(long, &conversation()).unwrap_err();
    assert!(error.to_string().contains("no thread for the template"), "{error}");
}

/// Templates with explosive growth; each would need far more than the 2 GiB available here.
#[cfg(target_os = "linux")]
fn growing() -> Vec<(&'static str, String)> {
    let steps = |step: &str| {
        format!(
            "{{% set ns = namespace(x='0123456789', l=[1]) %}}{{% for i in range(99999) %}}{step}{{% endfor %}}"
        )
    };
    let twice = "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='0123456789') %}";
    // Small in memory, but unbounded when written out.
    let shared = format!("{{% set x = ['0123456789'] %}}{}", "{% set x = [x, x] %}".repeat(60));
    let raw = "0123456789".repeat(1000);
    let many: Vec<String> = (0..1000).map(|i| format!("a{i}")).collect();
    let on_shared = |e: &str| format!("{shared}{{{{ {e} }}}}");
    vec![
        ("~", steps("{% set ns.x = ns.x ~ ns.x %}")),
        ("+", steps("{% set ns.x = ns.x + ns.x %}")),
        ("*", steps("{% set ns.l = [ns.l, 'x' * (50000000 + i)] %}")),
        ("join", steps("{% set ns.x = [ns.x, ns.x] | join(ns.x) %}")),
        ("str.join", steps("{% set ns.x = ns.x.join([ns.x, ns.x]) %}")),
        ("replace", steps("{% set ns.x = ns.x | replace('0', ns.x) %}")),
        ("str.replace", steps("{% set ns.x = ns.x.replace('0', ns.x) %}")),
        ("str.format", steps("{% set ns.x = '{0}{0}'.format(ns.x) %}")),
        ("str.center", "{{ 'x'.center(1000000, 'y' * 1000000) }}".to_string()),
        ("str.split", "{{ (',' * 99999999).split(',') }}".to_string()),
        ("format", "{{ '%4999999999d' | format(1) }}".to_string()),
        ("indent", "{{ ('a\\n' * 1000) | indent(9999999) }}".to_string()),
        ("tojson", "{% set x = [1] * 1000 %}{{ [x, x] | tojson(indent=' ' * 9999999) }}".to_string()),
        ("set", steps("{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}")),
        (
            "raw text",
            steps(&format!("{{% set ns.x %}}{{% for j in range(999) %}}{raw}{{% endfor %}}{{% endset %}}")),
        ),
        ("macro", format!("{twice}{{% for i in range(99) %}}{{% set ns.x = twice(ns.x) %}}{{% endfor %}}")),
        (
            "macros",
            steps(&format!(
                "{{% macro f({}) %}}{{% endmacro %}}{{% set ns.l = [f, ns.l] %}}",
                many.join(", ")
            )),
        ),
        ("list +", steps("{% set ns.l = ns.l + ns.l %}{% set x = ns.l | list %}")),
        ("tuple *", "{{ ((1, 2) * 49999999, (1, 2) * 49999999) }}".to_string()),
        ("list", "{{ ('x' * 99999999) | list }}".to_string()),
        ("batch", "{{ [1] | batch(999999999, 1) }}".to_string()),
        ("map", "{{ (['x' * 9999999] * 999) | map('upper') }}".to_string()),
        ("sum", "{{ (['x' * 9999999] * 999) | sum(start='') }}".to_string()),
        ("splat", "{% macro f() %}{% endmacro %}{{ f(*([1] * 99999999)) }}".to_string()),
        (
            "dictionary",
            steps("{% set ns.x = dict(ns.x, a=i) %}")
                .replace("namespace(x='0123456789'", &{
                    let entries: Vec<String> = many.iter().map(|key| format!("{key}=1")).collect();
                    format!("namespace(x={{}}, y=dict({})", entries.join(", "))
                })
                .replace("dict(ns.x, a=i)", "[dict(ns.y, a=i), ns.x]"),
        ),
        ("text of lists", on_shared("x | string")),
        ("~ of lists", on_shared("'' ~ x")),
        ("tojson of lists", on_shared("x | tojson")),
        ("upper of lists", on_shared("x | upper")),
        ("join of lists", on_shared("x | join")),
        ("in a text", on_shared("x in 'abc'")),
        ("is in a text", on_shared("x is in 'abc'")),
        ("constants", format!("{{{{ {} }}}}", vec!["('x' * 99999999)"; 40].join(" ~ "))),
    ]
}

#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_a_template_is_bounded() {
    let Ok(name) = std::env::var(LIMITED) else {
        for (name, _) in growing() {
            limited("the_memory_of_a_template_is_bounded", name, 2 << 20);
        }
        return;
    };
    let (_, source) = growing().into_iter().find(|(n, _)| *n == name).unwrap();
    let error = render(&source, &ChatInput::default()).unwrap_err();
    assert!(matches!(error, ChatError::TooLarge { line: 1 }), "{error:?}");
    assert!(error.to_string().contains("bytes of values and text"), "{error}");
}

#[test]
fn a_long_conversation_has_room() {
    let messages = (0..400).map(|_| Message::user("0123456789 ".repeat(100)));
    // One text and one list, both of which grow with each message.
    let source = "{% set ns = namespace(text='', list=[]) %}{% for m in messages %}\
        {% set ns.text = ns.text ~ m.content.strip() | replace(' ', '-') + '\\n' %}{% set ns.list = ns.list + [m] %}\
        {% endfor %}{{ ns.text }}{{ ns.list[1:] | length }}{{ messages | tojson | length }}";
    let text = render(source, &ChatInput::new(messages)).unwrap();
    assert_eq!(text.len(), 400 * 1100 + "399453600".len());
}

#[test]
fn a_template_cannot_go_in_circles() {
    let input = ChatInput::default();
    for (source, what) in [
        // A namespace inside itself or inside one of its values.
        ("{% set a = namespace() %}{% set a.x = a %}", "namespace"),
        ("{% set a = namespace() %}{% set a.x = [a] %}", "namespace"),
        ("{% set a = namespace() %}{% set a.x = {'k': a} %}", "namespace"),
        ("{% set a = namespace() %}{% set a.x = dict(k=a) %}", "namespace"),
        ("{% set a = namespace() %}{% set a.x = [1] | batch(3, a) %}", "namespace"),
        ("{% set a = namespace() %}{% set a.x = [{}] | map(attribute='k', default=a) %}", "namespace"),
        ("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}", "loop"),
        ("{% include 'chat' %}", "other templates"),
    ] {
        let error = render(source, &input).unwrap_err();
        assert!(error.to_string().contains(what), "{source}: {error}");
    }
    // The engine recurses over the operators of an expression, for each of them again.
    let long = format!("{{{{ x{} }}}}", "+1".repeat(100_000));
    let error = render(&long, &input).unwrap_err();
    assert!(matches!(error, ChatError::Syntax { line: 1, .. }), "{error:?}");
    let larger = "x".repeat(1 << 20);
    assert!(matches!(render(&larger, &input), Err(ChatError::Syntax { .. })));
    assert_eq!(
        render("{% block a %}1{% for i in [1, 2] %}{{ i + 1 }}{% endfor %}{% endblock %}", &input).unwrap(),
        "123"
    );
}

#[test]
fn a_long_conversation_takes_all_steps() {
    let source = "{% set ns = namespace(n=0) %}{% for a in range(900) %}{% for b in range(900) %}{% set ns.n = ns.n + 1 %}\
        {% endfor %}{% endfor %}{{ ns.n }}";
    assert_eq!(render(source, &ChatInput::default()).unwrap(), "810000");
}

#[test]
fn a_hostile_template_ends_with_an_error() {
    let input = ChatInput::default();
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' }}{% endfor %}{% endfor %}";
    assert!(matches!(render(endless, &input), Err(ChatError::TooLong { line: 1 })));
    for source in [
        // Infinite recursion, padding, a range.
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x'.ljust(99999999999) }}",
        "{{ range(99999999999) }}",
    ] {
        let error = render(source, &input).unwrap_err();
        assert!(matches!(error, ChatError::Render { .. }), "{source}: {error:?}");
    }
    for source in
        ["{% set a = 'x' * 9999999 %}{% for i in range(999) %}{{ a }}{% endfor %}", "{{ 'x' * 99999999999 }}"]
    {
        assert!(matches!(render(source, &input), Err(ChatError::TooLarge { line: 1 })), "{source}");
    }
    let nested =
        "{% set ns = namespace(x=1) %}{% for a in range(60000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    assert_eq!(render(nested, &input).unwrap(), "");
    let shown = render(&format!("{nested}{{{{ ns.x }}}}"), &input);
    assert!(matches!(shown, Err(ChatError::Render { .. })), "{shown:?}");
    // No rule of the engine catches this; it must not reach the caller as a panic.
    let _ = render("{{ 'abc'[0:9:-1] }}", &input);
}

/// Templates whose steps are few and long: comparisons of values that share their parts, searches of large
/// texts. Each ran for more than 40 seconds, or without an end: then this test has none.
#[test]
fn the_time_of_a_template_is_bounded() {
    let twins = format!(
        "{{% set a = ['x'] %}}{{% set b = ['x'] %}}{}",
        "{% set a = [a, a] %}{% set b = [b, b] %}".repeat(60)
    );
    let large = "{% set a = 'x' * 20000000 %}{% set b = a ~ 'y' %}{% set c = [a] * 1000 %}";
    let often = |step: &str| format!("{large}{{% for i in range(99999) %}}{step}{{% endfor %}}");
    let zoo = [
        format!("{twins}{{{{ a == b }}}}"),
        format!("{twins}{{{{ a < b }}}}"),
        format!("{twins}{{{{ 1 if 2 != a < b }}}}"),
        format!("{twins}{{{{ a in [1, b] }}}}"),
        format!("{twins}{{{{ a is eq(b) }}}}"),
        format!("{twins}{{{{ [a, b] | sort }}}}"),
        format!("{twins}{{{{ [a, b] | max }}}}"),
        format!("{twins}{{{{ [a].index(b) }}}}"),
        format!("{twins}{{% for i in [1, 2] %}}{{{{ loop.changed(a, b) }}}}{{% endfor %}}"),
        "{% set x = range(99999) | list %}{% for i in x %}{% if x == x + [i] %}{% endif %}{% endfor %}"
            .into(),
        "{% set x = range(99999) | list %}{% for i in x %}{% if -1 in x %}{% endif %}{% endfor %}".into(),
        often("{% if b in c %}{% endif %}"),
        often("{% if 'z' in a %}{% endif %}"),
        often("{% set x = a.find('z') %}"),
        often("{% set x = a | length %}"),
        often("{% set x = a[19999999] %}"),
        often("{% set x = a[19999999 + i if i > 0 else 0] %}"),
        often("{% set x = a | int %}"),
        often("{% if a is lower %}{% endif %}"),
        often("{% set x = c | map('length') | list %}"),
    ];
    let limit = Duration::from_millis(300);
    for source in zoo {
        let error =
            render(&source, &ChatInput::default().with_deadline(limit)).map(|text| text.len()).unwrap_err();
        let stopped = matches!(
            error,
            ChatError::TooMuchWork { .. } | ChatError::TimedOut { .. } | ChatError::TooLarge { .. }
        );
        assert!(stopped, "{source}: {error}");
    }
    // Without a deadline the work ends it.
    let patient = ChatInput::default().with_deadline(Duration::from_secs(3600));
    let searched = render(&often("{% set x = a.find('z') %}"), &patient);
    let ended = matches!(searched, Err(ChatError::TooMuchWork { line: 1 } | ChatError::TooLarge { line: 1 }));
    assert!(ended, "{searched:?}");
    // A handle that is set ends the template at the first check.
    let cancel = Cancel::default();
    cancel.cancel();
    let cancelled = render(&often("{% set x = a | length %}"), &ChatInput::default().with_cancel(cancel));
    assert!(matches!(cancelled, Err(ChatError::Cancelled { .. })), "{cancelled:?}");
}

/// What a user or a tool writes cannot end its turn; a function is applied to every part of it.
#[test]
fn contents_can_be_guarded() {
    let parts = serde_json::json!([{"type": "text", "text": "<b>"}]);
    let messages = [
        Message::user("<a>"),
        Message::new("user", "").with("content", &parts),
        Message::assistant("<c>"),
        Message::tool("1", "f", "<d>"),
    ];
    let source =
        "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}";
    let input = ChatInput::new(messages).guarded(&|text| text.replace('<', "("));
    assert_eq!(render(source, &input).unwrap(), "(a>(b><c>(d>");
}

/// An error has the template's own text, which may not control the terminal that shows it.
#[test]
fn an_exception_does_not_control_the_terminal() {
    let raised = render("{{ raise_exception('\u{1b}[2J\u{202e}') }}", &ChatInput::default()).unwrap_err();
    assert_eq!(raised.to_string(), "chat template, line 1: \\u{1b}[2J\\u{202e}");
}

fn file(with: impl FnOnce(&mut GgufWriter<'_>)) -> GgufFile {
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.tokens", Array::texts(["<unk>", "<s>", "</s>"])).unwrap();
    writer.set("tokenizer.ggml.bos_token_id", 1u32).unwrap();
    writer.set("tokenizer.ggml.eos_token_id", 2u32).unwrap();
    writer.set("tokenizer.ggml.padding_token_id", 77u32).unwrap();
    with(&mut writer);
    GgufFile::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

#[test]
fn templates_and_tokens_of_a_file() {
    let file = file(|w| {
        w.set("tokenizer.chat_template", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}").unwrap();
        w.set("tokenizer.chat_template.tool_use", "tools").unwrap();
        w.set("tokenizer.chat_template.broken", "\n{% if %}").unwrap();
    });
    let template = ChatTemplate::from_gguf(file.metadata(), None).unwrap();
    assert_eq!(template.render(&ChatInput::default()).unwrap(), "<s></s>False");
    assert!(template.source().starts_with("{{ bos_token }}"));
    let named = ChatTemplate::from_gguf(file.metadata(), Some("tool_use")).unwrap();
    assert_eq!(named.render(&ChatInput::default()).unwrap(), "tools");
    assert_eq!(ChatTemplate::names(file.metadata()), ["tool_use", "broken"]);
    let broken = ChatTemplate::from_gguf(file.metadata(), Some("broken"));
    assert!(matches!(broken, Err(ChatError::Syntax { line: 2, .. })), "{broken:?}");
    match ChatTemplate::from_gguf(file.metadata(), Some("rag")) {
        Err(ChatError::Missing { name, what }) => {
            assert_eq!(name.as_deref(), Some("rag"));
            assert!(what.contains("tool_use"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_without_a_template_says_so() {
    let none = file(|_| {});
    let missing = ChatTemplate::from_gguf(none.metadata(), None);
    assert!(matches!(missing, Err(ChatError::Missing { name: None, .. })), "{missing:?}");
    let wrong = file(|w| {
        w.set("tokenizer.chat_template", 7u32).unwrap();
    });
    let missing = ChatTemplate::from_gguf(wrong.metadata(), None);
    assert!(matches!(missing, Err(ChatError::Missing { name: None, .. })), "{missing:?}");
}

#[test]
fn one_template_serves_many_threads() {
    let template =
        ChatTemplate::new(TURNS).unwrap().with_token("bos_token", "<s>").with_token("eos_token", "</s>");
    let want = template.render(&conversation()).unwrap();
    std::thread::scope(|s| {
        let work = || (0..20).all(|_| template.render(&conversation()).unwrap() == want);
        let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
    });
}
