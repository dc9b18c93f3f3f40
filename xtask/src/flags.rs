//! `docs/flags.md`, written from what the binary says. A test of the binary compares the two.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::run::{self, cargo};

/// Asks the binary for every command and writes the page.
pub fn write() -> Result<()> {
    let mut page =
        "# Flags\n\nEvery command, with every flag. Written by `cargo xtask flags`; a test compares it \
                    with the binary.\n"
            .to_owned();
    let top = help(&[])?;
    page += &section("convoy", &top);
    for command in commands(&top) {
        let text = help(&[command])?;
        page += &section(&format!("convoy {command}"), &text);
        for below in commands(&text) {
            page += &section(&format!("convoy {command} {below}"), &help(&[command, below])?);
        }
    }
    let path = run::root().join("docs/flags.md");
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn help(command: &[&str]) -> Result<String> {
    let mut cargo = cargo();
    // Without a terminal and a width, help is wrapped the same everywhere.
    cargo.args(["run", "--quiet", "--package", "convoy", "--"]).args(command).arg("--help");
    let output =
        cargo.env_remove("COLUMNS").stdin(Stdio::null()).output().context("cannot run the binary")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("help must be UTF-8")?;
    Ok(text.lines().map(|it| format!("{}\n", it.trim_end())).collect())
}

fn section(name: &str, help: &str) -> String {
    format!("\n## {name}\n\n```text\n{help}```\n")
}

/// The commands that help lists: two spaces, a name, and what it does.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|it| *it != "Commands:").skip(1);
    let lines = lines.take_while(|it| !it.is_empty());
    lines
        .filter(|it| it.starts_with("  ") && !it.starts_with("   "))
        .filter_map(|it| it.split_whitespace().next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_what_help_says() {
        let help = "A server.\n\nUsage: x <COMMAND>\n\nCommands:\n  serve     Run one\n            of them\n  up        Run \
                    some\n\nOptions:\n  -h, --help  Print help\n";
        assert_eq!(commands(help), ["serve", "up"]);
        assert_eq!(commands("Usage: x\n"), [""; 0]);
    }
}
