//! Chat templates: their variables and functions, the formatting of values, and typed errors.

use diptych::chat::{ChatError, ChatInput, ChatTemplate, Message, ToolCall};
use diptych::ggml::gguf::{Array, GgufFile, GgufWriter};
use serde_json::json;
use std::time::{Duration, SystemTime};

pub(crate) fn render(source: &str, input: &ChatInput) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.with_token("bos_token", "<s>").with_token("eos_token", "</s>").render(input)
}

/// Returns the value of an expression.
fn value(expression: &str) -> String {
    render(&format!("{{{{ {expression} }}}}"), &ChatInput::default())
        .unwrap_or_else(|e| panic!("{expression}: {e}"))
}

pub(crate) fn conversation() -> ChatInput {
    ChatInput::new([
        Message::system("Be brief."),
        Message::user("  What is 2+2?\n"),
        Message::assistant("4"),
        Message::user("<b> & \"ü\""),
    ])
}

pub(crate) const TURNS: &str = "\
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

/// Text of a user or a tool cannot end its turn; a function is applied to every part of it.
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
