//! The JSON documents of the command line, pinned: a change of one is seen in review. Fields are only added.

#[test]
fn documents_are_as_they_were_reviewed() {
    let all = serde_json::to_string_pretty(&manager_cli::explain::schema::all()).unwrap();
    insta::assert_snapshot!(all);
}
