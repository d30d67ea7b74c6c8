//! Files of agents: byte for byte in both directions, never out of the workspace, never half.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use phalanx_tests::bytes;
use phalanx_tests::install::Install;
use phalanx_tests::programs::is_root_for;
use phalanx_tests::wait;
use protocol::agent::Phase;

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

/// Nothing of a transfer is left in a folder but what has these names.
fn holds(folder: &Path, names: &[&str]) {
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names);
}

#[test]
fn files_go_both_ways_byte_for_byte_with_their_modes() {
    let install = Install::start();
    let work = install.create("box", &[], &["hang"]).workspace();
    let whole = bytes::of_seed(3, (5 << 20) + 17);
    let (there, back) = (install.file("big", &whole), install.text_path("back"));
    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o750)).unwrap();
    install.run(&["file", "put", &there, "box:in/big"]).ended_with(3);
    install.run(&["file", "put", "-p", &there, "box:in/big"]).succeeded();
    assert!(std::fs::read(work.join("in/big")).unwrap() == whole);
    assert_eq!(mode_of(&work.join("in/big")), 0o750);
    holds(&work.join("in"), &["big"]);
    install.run(&["file", "get", "box:in/big", &back]).succeeded();
    assert!(std::fs::read(&back).unwrap() == whole);
    assert_eq!(mode_of(Path::new(&back)), 0o750);
    assert!(install.run(&["file", "get", "box:in/big", "-"]).succeeded().stdout == whole);

    // Of the sizes at which pieces end, and of none.
    for size in [0, 1, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, 1 << 20] {
        let content = bytes::of_seed(size as u64, size);
        install.run_with(&["file", "put", "-", "box:piece"], &content).succeeded();
        assert!(std::fs::read(work.join("piece")).unwrap() == content, "{size}");
        assert!(install.run(&["file", "get", "box:piece", "-"]).succeeded().stdout == content, "{size}");
    }
    // A name that is no UTF-8, and one with what a terminal acts on.
    std::fs::write(work.join("odd\u{1b}[2J\u{9b}2J"), "x").unwrap();
    let listed = install.run(&["file", "ls", "box"]).succeeded();
    assert!(!listed.text().contains(['\u{1b}', '\u{9b}']), "{:?}", listed.text());
    assert!(listed.text().contains("in/") && listed.text().contains("piece"), "{}", listed.text());
    let json = install.run(&["file", "ls", "-r", "box:in", "-o", "json"]).succeeded();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["items"][0]["path"], "in/big");
    assert_eq!(
        (json["items"][0]["bytes"].as_u64(), &json["items"][0]["mode"]),
        (Some((5 << 20) + 17), &"0750".into())
    );

    // While the workspace is there, its files are too; afterwards they are not, and that is said.
    install.run(&["stop", "box"]).succeeded();
    install.agent_until("box", "ends", |agent| agent.phase == Phase::Stopped);
    assert_eq!(install.run(&["file", "get", "box:in/big", "-"]).succeeded().stdout.len(), whole.len());
    install.run(&["destroy", "box", "--discard"]).succeeded();
    let ran = install.run(&["file", "get", "box:in/big", "-"]).ended_with(3);
    assert!(ran.stderr.contains("workspace is not there any more"), "{}", ran.stderr);
}

#[test]
fn no_path_and_no_link_leads_out_of_the_workspace() {
    let install = Install::start();
    let work = install.create("box", &[], &["hang"]).workspace();
    let secret = install.file("secret", "s3cr3t-42");
    let outside = install.path("outside");
    std::fs::create_dir(&outside).unwrap();
    symlink(&secret, work.join("link")).unwrap();
    symlink(&outside, work.join("folder-link")).unwrap();
    symlink("../../../../../../../../etc", work.join("etc")).unwrap();
    symlink("/proc/self/root", work.join("magic")).unwrap();
    std::fs::create_dir(work.join("real")).unwrap();
    std::fs::write(work.join("real/file"), "inside").unwrap();
    symlink("real/file", work.join("inner")).unwrap();
    assert_eq!(install.run(&["file", "get", "box:inner", "-"]).succeeded().text(), "inside");
    for path in ["link", "etc/passwd", "magic/etc/passwd", "folder-link/x"] {
        let ran = install.run(&["file", "get", &format!("box:{path}"), "-"]).ended_with(4);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("leads out"), "{path}: {}", ran.stderr);
    }
    for path in ["../secret", "/etc/passwd", "real/../../secret"] {
        let ran = install.run(&["file", "get", &format!("box:{path}"), "-"]).ended_with(2);
        assert!(ran.stdout.is_empty(), "{path}");
    }
    install.run_with(&["file", "put", "-", "box:folder-link/x"], b"evil").ended_with(4);
    install.run_with(&["file", "put", "-", "box:link"], b"evil").ended_with(4);
    install.run_with(&["file", "put", "-p", "-", "box:folder-link/a/b"], b"evil").ended_with(4);
    holds(&outside, &[]);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "s3cr3t-42");
    let ran = install.run(&["file", "ls", "box:folder-link"]).ended_with(4);
    assert!(ran.stdout.is_empty());

    // What is no file is not opened: a pipe would hold us up, a device may act.
    nix::unistd::mkfifo(&work.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let ran = install.run(&["file", "get", "box:pipe", "-"]).ended_with(2);
    assert!(ran.stderr.contains("pipe, socket or device"), "{}", ran.stderr);
    install.run_with(&["file", "put", "-", "box:pipe"], b"x").ended_with(2);
    let ran = install.run(&["file", "get", "box:real", "-"]).ended_with(2);
    assert!(ran.stderr.contains("-r"), "{}", ran.stderr);
    install.run(&["file", "get", "box:nothing", "-"]).ended_with(3);
    install.run(&["file", "get", "nobody:x", "-"]).ended_with(3);
    install.run_with(&["file", "put", "-", "box:no/such/folder"], b"x").ended_with(3);

    // An agent is no operator: other agents' files are none of its business.
    let phalanx = phalanx_tests::programs::path_of("phalanx");
    let home = install.home().display().to_string();
    let inner = format!("{} --home {home} file get box:real/file -", phalanx.display());
    let ran = install.run(&["exec", "box", "--", "sh", "-c", &inner]);
    assert_eq!((ran.code, ran.stdout.is_empty()), (4, true), "{}", ran.stderr);
}

#[test]
fn folders_go_whole_or_not_at_all() {
    let install = Install::start();
    let work = install.create("box", &[], &["hang"]).workspace();
    let tree = install.path("tree");
    let deep = "d".repeat(90);
    std::fs::create_dir_all(tree.join("sub").join(&deep)).unwrap();
    std::fs::create_dir(tree.join("empty")).unwrap();
    std::fs::write(tree.join("run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(tree.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(tree.join("sub").join(&deep).join("f".repeat(90)), bytes::of_seed(1, 700_000)).unwrap();
    symlink("run.sh", tree.join("link")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let same = |one: &Path, other: &Path| {
        let ran =
            std::process::Command::new("diff").args(["-r", "--no-dereference"]).arg(one).arg(other).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        assert_eq!(mode_of(&other.join("run.sh")), 0o755);
    };
    install.run(&["file", "put", &text(&tree), "box:"]).ended_with(2);
    install.run(&["file", "put", "-r", &text(&tree), "box:"]).succeeded();
    same(&tree, &work.join("tree"));
    let back = install.path("back");
    install.run(&["file", "get", "-r", "box:tree", &text(&back)]).succeeded();
    same(&tree, &back);
    // Files of an agent are not mixed with what is there.
    let ran = install.run(&["file", "get", "-r", "box:tree/sub", &text(&tree.join("run.sh"))]).ended_with(5);
    assert!(ran.stderr.contains("is there already"), "{}", ran.stderr);

    let tar = install.run(&["file", "get", "-r", "box:tree", "-"]).succeeded().stdout;
    install.run_with(&["file", "put", "-r", "-", "box:copy"], &tar).succeeded();
    same(&tree, &work.join("copy"));
    let unpacked = install.path("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    std::fs::write(install.path("x.tar"), &tar).unwrap();
    let mut unpack = std::process::Command::new("tar");
    unpack.arg("-xf").arg(install.path("x.tar")).arg("-C").arg(&unpacked);
    assert!(unpack.status().unwrap().success());
    same(&tree, &unpacked);

    // One that cannot be read whole leaves nothing.
    nix::unistd::mkfifo(&work.join("tree/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let partial = install.path("partial");
    let ran = install.run(&["file", "get", "-r", "box:tree", &text(&partial)]).succeeded();
    assert!(ran.stderr.contains("tree/pipe: left out"), "{}", ran.stderr);
    symlink("/etc", work.join("out")).unwrap();
    install.run(&["file", "get", "-r", "box:out", &text(&install.path("never"))]).ended_with(4);
    assert!(!install.path("never").exists());
}

#[test]
fn outputs_are_read_when_the_workspace_is_gone() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = format!(
        "{{\"name\": \"one\", \"repo\": {:?}, \"command\": \"mkdir out && echo kept > out/a.txt\", \"outputs\": [\"out\"]}}\n",
        repo.path.display().to_string()
    );
    let file = install.file("tasks.jsonl", tasks);
    install.run(&["run", &file]).succeeded();
    let agent = install.agents(&["-a"]).remove(0);
    let id = agent.id.to_string();
    install.run(&["destroy", &id, "--discard"]).succeeded();
    install.gone(agent.id);
    let ran = install.run(&["file", "get", "--outputs", &format!("{id}:out/a.txt"), "-"]).succeeded();
    assert_eq!(ran.text(), "kept");
    let ran = install.run(&["file", "ls", "--outputs", "-r", &id]).succeeded();
    assert!(ran.text().contains("out/a.txt"), "{}", ran.text());
}

#[test]
fn an_upload_that_is_cut_leaves_what_was_there() {
    let install = Install::start();
    let work = install.create("box", &[], &["hang"]).workspace();
    std::fs::write(work.join("file"), "before").unwrap();
    let mut command = install.command(&["file", "put", "-", "box:file"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than one piece, so that some are on the host already.
    std::io::Write::write_all(&mut stdin, &bytes::of_seed(9, 3 << 20)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stdin);
    install.kill("hostd");
    install.settled();
    assert_eq!(std::fs::read_to_string(work.join("file")).unwrap(), "before");
    holds(&work, &["file"]);
    // `settled` looks at the last heartbeat, which may be older than the kill.
    let put = || install.run_with(&["file", "put", "-", "box:file"], b"after").code;
    wait::until(wait::LIMIT, "hostd answers again", put, |code| *code == 0);
    assert_eq!(std::fs::read_to_string(work.join("file")).unwrap(), "after");
}

#[test]
fn files_belong_to_the_user_of_the_agent() {
    if !is_root_for("an agent of another user") {
        return;
    }
    let install = Install::start();
    let work = install.create("theirs", &["--user", "nobody"], &["hang"]).workspace();
    install.run_with(&["file", "put", "-p", "-", "theirs:a/b"], b"x").succeeded();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    assert_eq!(work.join("a/b").metadata().unwrap().uid(), nobody.uid.as_raw());
    assert_eq!(work.join("a").metadata().unwrap().uid(), nobody.uid.as_raw());
    // What root alone may read is not read for whoever asks hostd.
    std::fs::write(work.join("roots"), "x").unwrap();
    std::fs::set_permissions(work.join("roots"), PermissionsExt::from_mode(0o600)).unwrap();
    install.run(&["file", "get", "theirs:roots", "-"]).ended_with(4);
}
