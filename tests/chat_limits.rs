//! Chat templates that want too much: memory, work, time.

use crate::chat::{TURNS, conversation, render};
use diptych::chat::{ChatError, ChatInput, Message};
use diptych::generate::Cancel;
use std::time::Duration;

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
        .args(["--exact", &format!("chat_limits::{test}"), "--test-threads", "1"])
        .env(LIMITED, what)
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(run.status.success() && said.contains("1 passed"), "{what}: {said}");
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
/// texts. Each ran for more than 40 seconds, or without an end.
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
    // A deadline that has passed ends a template at the first check.
    let late = ChatInput::default().with_deadline(Duration::ZERO);
    let late = render(&often("{% set x = a | length %}"), &late);
    assert!(matches!(late, Err(ChatError::TimedOut { .. })), "{late:?}");
    let limit = Duration::from_millis(300);
    for source in zoo {
        // On a thread, because a template that nothing stops would stop the test.
        let (send, receive) = std::sync::mpsc::channel();
        let template = source.clone();
        std::thread::spawn(move || send.send(render(&template, &ChatInput::default().with_deadline(limit))));
        let rendered = receive.recv_timeout(Duration::from_secs(30)).expect(&source);
        let error = rendered.map(|text| text.len()).unwrap_err();
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
