//! Finished work in the hands of a person.

mod comparing;
mod deciding;
mod merging;
mod whole;
