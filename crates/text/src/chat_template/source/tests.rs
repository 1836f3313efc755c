use super::rewritten;

#[test]
fn operators_have_the_precedence_of_jinja() {
    let cases = [
        ("{{ a % b }}", "{{ __mod(a, b) }}"),
        ("{{ 'x' % (a, b % 2) ~ c * d }}", "{{ __text(__mod('x', (a, __mod(b, 2)))) ~ __text(c * d) }}"),
        ("{{ -a % b ** c|f % d }}", "{{ __mod(__mod(-a, b ** __bounded(c)|f), d) }}"),
        ("{{ a - b % c + d }}", "{{ a - __mod(b, c) + d }}"),
        (
            "{% if x is divisibleby 3 and y % 2 == 0 %}",
            "{% if x is divisibleby 3 and __bounded(__mod(y, 2)) == 0 %}",
        ),
        ("{%- if -a % b -%}", "{%- if __mod(-a, b) -%}"),
        (
            "{% set x = f(a)[b % c].d ~ \"%}\" %}",
            "{% set x = __stored((__text(f(__bounded(a))[__bounded((__mod(b, c)))].d) ~ __text(\"%}\"))) %}",
        ),
        ("{% for x in a ~ b if x % 2 %}", "{% for x in __text(a) ~ __text(b) if __mod(x, 2) %}"),
        (
            "{{ 1e-05 ~ a.b }} {{ {'a': {'b': c % d}} }}",
            "{{ __text(1e-05) ~ __text(a.b) }} {{ {'a': {'b': __mod(c, d)}} }}",
        ),
        ("{% if not a % b %}", "{% if not __mod(a, b) %}"),
        ("{{ a if b else c % d }}", "{{ a if b else __mod(c, d) }}"),
        ("{{ f(x=a % b, *c) }}", "{{ f(x=__bounded(__mod(a, b)), *__bounded(c)) }}"),
    ];
    for (source, expected) in cases {
        assert_eq!(rewritten(source).unwrap(), expected);
    }
}

#[test]
fn compared_and_stored_values_are_bounded() {
    let cases = [
        ("{{ a == b + c and d }}", "{{ __bounded(a) == __bounded(b) + __bounded(c) and d }}"),
        (
            "{% if a not in b or 'x' in c.d[e] %}",
            "{% if __bounded(a) not in __bounded(b) or 'x' in __bounded(c.d[__bounded((e))]) %}",
        ),
        ("{% for a in b if a < c %}", "{% for a in b if __bounded(a) < __bounded(c) %}"),
        ("{{ f(a=b == c, d=e) }}", "{{ f(a=__bounded(b) == __bounded(c), d=__bounded(e)) }}"),
        ("{{ {a: b, 'c': d}[e, f] }}", "{{ {__bounded(a): b, 'c': d}[__bounded((e, f))] }}"),
        ("{{ a[b:-1] }}", "{{ a[__bounded(b):-1] }}"),
        ("{% set a, b = c, d -%}", "{% set a, b = __stored((c, d)) -%}"),
        ("{{ loop.changed(a, b) }}", "{{ loop.changed(*__all_bounded(a, b)) }}"),
        (
            "{% macro f(a, b=c == d) %}{% endmacro %}",
            "{% macro f(a, b=__bounded(c) == __bounded(d)) %}{% endmacro %}",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(rewritten(source).unwrap(), expected);
    }
}

#[test]
fn limits_are_exact() {
    let length = |bytes: usize| rewritten(&"x".repeat(bytes));
    assert!(length(super::MAX_SOURCE).is_ok());
    assert!(
        length(super::MAX_SOURCE + 1).unwrap_err().contains("262145 bytes, more than the 262144 allowed")
    );
    let brackets =
        |count: usize| rewritten(&format!("{{{{ {}a{} }}}}", "(".repeat(count), ")".repeat(count)));
    assert!(brackets(super::MAX_DEPTH).is_ok());
    assert!(brackets(super::MAX_DEPTH + 1).unwrap_err().contains("more than the 100 brackets"));
    let branches = |count: usize| rewritten(&format!("{{% if a %}}{}", "{% elif a %}".repeat(count - 1)));
    assert!(branches(super::MAX_BRANCHES).is_ok());
    assert!(branches(super::MAX_BRANCHES + 1).unwrap_err().contains("more than the 500 branches"));
    for after in ["[0]", "()", ".a"] {
        let chain = |count: usize| rewritten(&format!("{{{{ a{} }}}}", after.repeat(count)));
        assert!(chain(super::MAX_OPERATORS - 2).is_ok(), "{after}");
        assert!(
            chain(super::MAX_OPERATORS + 1).unwrap_err().contains("more than the 500 operators"),
            "{after}"
        );
    }
}

#[test]
fn other_text_stays_as_it_is() {
    for source in [
        "{# a % b #} 100 % 3 { % } {{ '%' }} {{ 'a ~ b' }} %}",
        "{% raw %}{{ a % b }}{%- endraw %}",
        "{%- raw -%} {{ a ~ b {% x %} {% endraw -%}",
        "{{ a % b",
        "{{ 'a % b }}",
        "{{ a % b) }}",
        "{% macro f(a) %}{{ a.varargs }}{% endmacro %}{{ kwargs }}",
        "{% macro f(a, kwargs) %}{{ kwargs }}{% endmacro %}",
        "{",
        "",
        "{% for key, value in pairs.items() recursive %}{% set a | upper %}{% endset %}{{ a[1] }}{{ a['b'] }}",
    ] {
        assert_eq!(rewritten(source).unwrap(), source);
    }
}

#[test]
fn macros_with_more_arguments_are_wrapped() {
    let source = "{% macro f(a, b='x' ~ 'y') %}{{ varargs }}{%- endmacro -%}\n";
    let expected = "{% macro __f(a, b=__text('x') ~ __text('y'),varargs=(),kwargs={}) %}{{ varargs }}{%- endmacro -%}\
                    {%- set f = __variadic(__f, true, false) -%}\n";
    assert_eq!(rewritten(source).unwrap(), expected);
    let empty = "{% macro f() %}{{ varargs }}{% endmacro %}{% macro g(a,) %}{{ kwargs }}{% endmacro %}";
    let expected = "{% macro __f(varargs=(),kwargs={}) %}{{ varargs }}{% endmacro %}\
                    {% set f = __variadic(__f, true, false) %}\
                    {% macro __g(a,varargs=(),kwargs={}) %}{{ kwargs }}{% endmacro %}\
                    {% set g = __variadic(__g, false, true) %}";
    assert_eq!(rewritten(empty).unwrap(), expected);
    let nested = "{% macro f() %}{% macro g(a) %}{{ kwargs.a }}{% endmacro %}{{ g(1) }}{% endmacro %}";
    let expected = "{% macro f() %}{% macro __g(a,varargs=(),kwargs={}) %}{{ kwargs.a }}{% endmacro %}\
                    {% set g = __variadic(__g, false, true) %}{{ g(1) }}{% endmacro %}";
    assert_eq!(rewritten(nested).unwrap(), expected);
}

#[test]
fn blocks_of_generation_always_render() {
    let source = "{%- generation -%}x{%+ endgeneration %}{% generation_x %}";
    assert_eq!(rewritten(source).unwrap(), "{%- if true -%}x{%+ endif %}{% generation_x %}");
}
