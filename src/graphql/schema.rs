//! The schema: `graphql/schema.graphql` is its source, descriptions and all; this gives every field of it a way to be
//! answered. A field without a resolver of its own is looked up in what its parent was answered with.

use crate::ask::{Ask, Out};
use crate::events;
use crate::fault::Fault;
use crate::resolvers::{self, Resolver};
use crate::watch;
use async_graphql::Positioned;
use async_graphql::Value;
use async_graphql::dynamic::{
    Enum, EnumItem, Field, FieldFuture, FieldValue, InputObject, InputValue, Interface, InterfaceField,
    Object, ResolverContext, Scalar, Schema, SchemaBuilder, SchemaError, Subscription, SubscriptionField,
    TypeRef,
};
use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, EnumType, FieldDefinition, InputValueDefinition, ObjectType, Type, TypeDefinition, TypeKind,
    TypeSystemDefinition,
};

/// The text of the schema.
pub const SDL: &str = include_str!("../../graphql/schema.graphql");

/// Builds the schema.
///
/// # Errors
/// A text that is no schema: a mistake of ours, found by the first test.
pub fn build(introspection: bool) -> Result<Schema, SchemaError> {
    let document = parse_schema(SDL).map_err(|error| SchemaError::from(error.to_string()))?;
    let mut builder = Schema::build("Query", None, Some("Subscription")).disable_suggestions();
    if !introspection {
        builder = builder.disable_introspection();
    }
    for definition in document.definitions {
        if let TypeSystemDefinition::Type(definition) = definition {
            builder = register(builder, definition.node);
        }
    }
    builder.finish()
}

fn text(description: Option<Positioned<String>>) -> String {
    description.map(|text| text.node.trim().to_owned()).unwrap_or_default()
}

fn register(builder: SchemaBuilder, definition: TypeDefinition) -> SchemaBuilder {
    let (name, about) = (definition.name.node.to_string(), text(definition.description));
    match definition.kind {
        TypeKind::Scalar => builder.register(Scalar::new(name).description(about)),
        TypeKind::Enum(list) => builder.register(enumeration(name, about, list)),
        TypeKind::InputObject(list) => {
            let new = InputObject::new(name).description(about);
            builder.register(list.fields.into_iter().fold(new, |all, field| all.field(input(field.node))))
        }
        TypeKind::Interface(list) => {
            let new = Interface::new(name).description(about);
            builder.register(list.fields.into_iter().fold(new, |all, field| {
                let field = field.node;
                let ty = type_ref(&field.ty.node);
                let new = InterfaceField::new(field.name.node.to_string(), ty);
                all.field(new.description(text(field.description)))
            }))
        }
        TypeKind::Object(list) if name == "Subscription" => {
            let new = Subscription::new(name).description(about);
            builder
                .register(list.fields.into_iter().fold(new, |all, field| all.field(subscription(field.node))))
        }
        TypeKind::Object(list) => builder.register(object(name, about, list)),
        // There is none.
        TypeKind::Union(_) => builder,
    }
}

fn enumeration(name: String, about: String, list: EnumType) -> Enum {
    list.values.into_iter().fold(Enum::new(name).description(about), |all, value| {
        all.item(EnumItem::new(value.node.value.node.to_string()).description(text(value.node.description)))
    })
}

fn type_ref(ty: &Type) -> TypeRef {
    let base = match &ty.base {
        BaseType::Named(name) => TypeRef::named(name.as_str()),
        BaseType::List(inner) => TypeRef::List(Box::new(type_ref(inner))),
    };
    if ty.nullable { base } else { TypeRef::NonNull(Box::new(base)) }
}

fn base_name(ty: &Type) -> &str {
    match &ty.base {
        BaseType::Named(name) => name.as_str(),
        BaseType::List(inner) => base_name(inner),
    }
}

fn input(definition: InputValueDefinition) -> InputValue {
    let new = InputValue::new(definition.name.node.to_string(), type_ref(&definition.ty.node));
    let new = new.description(text(definition.description));
    match definition.default_value {
        Some(value) => new.default_value(value.node),
        None => new,
    }
}

fn object(name: String, about: String, list: ObjectType) -> Object {
    let is_event = list.implements.iter().any(|interface| interface.node == "Event");
    let mut new = Object::new(name.clone()).description(about);
    for interface in list.implements {
        new = new.implement(interface.node.to_string());
    }
    list.fields.into_iter().fold(new, |all, field| all.field(answered(&name, is_event, field.node)))
}

fn answered(parent: &str, is_event: bool, definition: FieldDefinition) -> Field {
    let name = definition.name.node.to_string();
    let ty = type_ref(&definition.ty.node);
    let (base, about) = (base_name(&definition.ty.node).to_owned(), text(definition.description));
    let resolver = resolvers::of(parent, &name);
    let (key, page) = (name.clone(), parent == "EventPage");
    let new = Field::new(name, ty, move |ctx| match resolver {
        Some(resolver) => resolved(ctx, resolver),
        None if page => of_page(ctx, key.clone()),
        None if is_event => FieldFuture::from_value(events::field(&ctx, &key, &base)),
        None => FieldFuture::from_value(looked_up(&ctx, &key)),
    });
    definition
        .arguments
        .into_iter()
        .fold(new.description(about), |all, argument| all.argument(input(argument.node)))
}

/// What the parent was answered with holds it.
fn looked_up(ctx: &ResolverContext<'_>, key: &str) -> Option<Value> {
    match ctx.parent_value.as_value() {
        Some(Value::Object(fields)) => fields.get(key).filter(|value| **value != Value::Null).cloned(),
        _ => None,
    }
}

/// A page of events is no value: its events have types of their own.
fn of_page<'a>(ctx: ResolverContext<'a>, key: String) -> FieldFuture<'a> {
    FieldFuture::new(async move {
        let page = ctx.parent_value.try_downcast_ref::<events::Page>()?;
        Ok(events::page_field(page, &key))
    })
}

/// Resolvers work without waiting for anything: they run on a thread that may block.
fn resolved<'a>(ctx: ResolverContext<'a>, resolver: Resolver) -> FieldFuture<'a> {
    FieldFuture::new(async move {
        let answer = Ask::of(&ctx).and_then(|ask| resolver(&ask));
        answer.map(field_value).map_err(Fault::error)
    })
}

/// An answer as the library wants it.
pub fn field_value<'a>(out: Out) -> Option<FieldValue<'a>> {
    match out {
        Out::None => None,
        Out::Value(value) => {
            let value = Value::from_json(value).unwrap_or_default();
            (value != Value::Null).then(|| FieldValue::value(value))
        }
        Out::Events(list) => Some(FieldValue::list(list.into_iter().map(event))),
        Out::EventPage(list, cursor) => Some(FieldValue::owned_any(events::Page { list, cursor })),
    }
}

/// An event, under the name of its kind.
pub fn event<'a>(found: events::Found) -> FieldValue<'a> {
    let value = Value::from_json(found.value).unwrap_or_default();
    FieldValue::value(value).with_type(found.kind)
}

fn subscription(definition: FieldDefinition) -> SubscriptionField {
    let name = definition.name.node.to_string();
    let key = name.clone();
    let new =
        SubscriptionField::new(name, type_ref(&definition.ty.node), move |ctx| watch::subscribe(&key, ctx));
    let about = text(definition.description);
    definition
        .arguments
        .into_iter()
        .fold(new.description(about), |all, argument| all.argument(input(argument.node)))
}

/// A fault that names what is missing of ours.
pub fn missing(what: &str) -> Fault {
    Fault::Internal(format!("{what} is not there"))
}
