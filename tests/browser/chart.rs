//! The chart of the overview as the browser draws it: its bars are as high as the numbers in the table behind it.

use serde_json::Value;

use crate::browser::Browser;
use crate::gateway::{ADMIN, Gateway, paste};
use crate::page_checks::SCHEMES;

/// Pixels of each class of outcomes over all columns, found from the top of the chart to its bottom; the height of the
/// chart, the number at its top, and the fill of each class.
const DRAWN: &str = "
    const svg = document.querySelector('svg.columns');
    svg.scrollIntoView();
    const box = svg.getBoundingClientRect();
    const pixels = { admitted: 0, failed: 0, refused: 0 }, fills = {};
    for (const column of svg.querySelectorAll('.reach')) {
        const { left, width } = column.getBoundingClientRect();
        for (let y = Math.ceil(box.top); y < box.bottom; y++) {
            const found = document.elementFromPoint(left + width * 0.45, y);
            const name = found && found.getAttribute('class');
            if (!(name in pixels)) continue;
            pixels[name] += 1;
            fills[name] = getComputedStyle(found).fill;
        }
    }
    const top = parseInt(document.querySelector('.scale').textContent.replaceAll(',', ''));
    return { pixels, height: box.height, top, fills };";

/// The numbers of the table, by outcome, over all hours.
const TABLE: &str = "
    const sums = {};
    const names = [...document.querySelectorAll('.more thead th')].map((cell) => cell.textContent);
    for (const row of document.querySelectorAll('.more tbody tr'))
        [...row.children].slice(1).forEach((cell, n) => {
            sums[names[n + 1]] = (sums[names[n + 1]] || 0) + parseInt(cell.textContent.replaceAll(',', ''));
        });
    return sums;";

#[test]
fn bars_are_as_high_as_the_numbers_of_the_table() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    gateway.sign_in(&browser, ADMIN);
    let (key, _) = gateway.make_key(&browser, "Nightly report");
    (0..30).for_each(|_| assert_eq!(gateway.list_with(&key).status, 200));
    let reader = gateway.demo_key();
    let post = format!("curl -s -i -H 'Authorization: Bearer {reader}' -d '{{}}' {}/api/queries", gateway.origin);
    // Fewer than are counted together in a record that comes later.
    (0..8).for_each(|_| assert_eq!(paste(&post).status, 403));
    browser.go(&gateway.page("/overview"));
    for (width, scheme) in [(1280, SCHEMES[0]), (390, SCHEMES[1])] {
        browser.view(width, scheme);
        let (drawn, table) = (browser.script(DRAWN), browser.script(TABLE));
        let number = |value: &Value| value.as_f64().unwrap();
        assert_eq!((number(&table["Completed"]), number(&table["Forbidden"])), (30.0, 8.0), "{table}");
        for (class, outcome) in [("admitted", "Completed"), ("refused", "Forbidden")] {
            let expected = number(&table[outcome]) / number(&drawn["top"]) * number(&drawn["height"]);
            let found = number(&drawn["pixels"][class]);
            // A request may have been in the hour before: two bars, each with its edges.
            assert!((found - expected).abs() <= 4.0, "{class}: {found} pixels, not {expected}: {drawn}");
        }
        assert_eq!(drawn["pixels"]["failed"], 0);
        assert_ne!(drawn["fills"]["admitted"], drawn["fills"]["refused"], "{scheme}");
    }
    gateway.end(&browser);
}
