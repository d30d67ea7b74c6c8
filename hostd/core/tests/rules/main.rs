//! What a host core promises: rules by name (`life`, `adoption`, `removal`, `messages`), and properties of any sequence of inputs.

#[cfg(test)]
mod adoption;
mod changes;
mod collecting;
#[cfg(test)]
mod host;
#[cfg(test)]
mod life;
#[cfg(test)]
mod messages;
mod preparing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod removal;
#[cfg(test)]
mod signals;
