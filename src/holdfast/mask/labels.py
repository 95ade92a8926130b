"""What stands before a secret, and whether what follows is one.

`password=…`, `--token …`, `"api_key": "…"`, `STRIPE_KEY: …`: a name, a sign, a value.  How much a
value has to look like a secret depends on how surely the name means one: anything after `password`
that is not plainly a word of a program, but only something drawn by chance after `key`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

STRONG = (
    r"pass(?:word|wd|phrase|code)|(?:db|key|user|auth)_?pass|pass\b|pwd|\bpw\b|_pw\b|secret"
    r"|contrase(?:n|\xc3\xb1)a|passwort|mot_de_passe"
)
MEDIUM = (
    r"token|api[_. -]?key|(?:access|private|account|signing|encryption|master|service|shared|storage"
    r"|session|license|auth|client|admin|deploy|webhook|database|db|priv|ssh|consumer|application|app"
    r"|sdk|user|server|root|live|test|prod|production|secure)[_. -]?key|credential|bearer|cookie|_auth|jwt"
)
PROVIDERS = """
    abuseipdb adafruit adobe airtable aiven algolia alibaba aliyun amplitude anthropic anyscale apify
    apollo appcenter artifactory asana assemblyai atlassian auth0 aws axiom azure bamboo baseten
    beamer bitbucket bitly blackfire bluesky box braintree branch brevo browserstack buildkite
    bunny cerebras circleci clearbit clerk clickhouse clickup cloudflare cloudinary cockroach
    codacy codecov cohere coinbase confluent consul contentful convex coveralls cursor datadog
    databricks deepgram deepl deepseek deno digitalocean discord docker doppler dropbox droneci
    dynatrace easypost elastic elevenlabs etherscan etsy eventbrite facebook fastly fauna figma
    finicity finnhub firebase fireworks flickr flutterwave fly freshbooks freshdesk gemini
    gitea github gitlab gitter gocardless google grafana groq harness hashicorp heroku hetzner
    honeycomb hubspot huggingface hunter infracost infura instagram intercom ionos ipinfo
    ipstack jfrog jira jumpcloud kaggle klaviyo kraken kucoin launchdarkly linear linkedin
    linode lob logz looker mailchimp mailgun mailjet mapbox mattermost maxmind meraki messagebird
    microsoft mistral mixpanel moderation mongodb mux neon netlify newrelic ngrok notion npm
    nuget nvidia nytimes octopus okta onelogin openai openrouter opsgenie optimizely pagerduty
    paypal paystack pendo percy perplexity pinecone plaid planetscale postman posthog postmark
    prefect pulumi pusher pypi qdrant quay rabbitmq railway rapidapi razorpay readme redis
    render replicate resend rollbar runpod salesforce scaleway segment sendbird sendgrid
    sendinblue sentry serpapi shodan shopify shippo sidekiq slack snowflake snyk sonar
    sourcegraph splunk spotify square squarespace stability statuspage strava stripe
    stytch sumologic supabase surge tailscale tavily telegram terraform todoist together
    travis trello tumblr twilio twitch twitter typeform ubidots unsplash upstash upstage vault
    vercel virustotal voyage vultr weaviate webex webflow wakatime weatherstack workos yandex
    yelp youtube zapier zendesk zoho zoom bittrex bitrise brave canva cartesia checkout civo
    cloudsmith configcat couchbase databento datagov data.gov devin disqus ebay exoscale fal falai
    fullstory greptile gumroad highnote ibm bluemix bxp influx infomaniak instantly kagi larksuite lark
    lichess lighton llama mem0 mercury mergify message-bird midtrans miro telegrm new-york-times
    newyorktimes ollama onfido openweather ovh persona pinterest polymarket privateai private-ai
    rainforest ramp retell samsara sumo tableau telnyx temporal wandb weights wiz woo workato
    xendit zuplo softlayer cloudant artifactory bundle_ session contribsys mid ably chargebee
    customer.io drift duffel eleven fathom front gladia helicone iterable langfuse litellm lokalise
    modal monday nango novu nylas outreach paddle parse pipedrive privy pubnub recurly rev.ai
    sanity smartsheet stream svix swarm tines toggl trigger twelvedata uploadcare vonage nexmo wistia
    wordpress zeplin paradigm pyowm owm linked[_-]?in message[_-]?bird private[_-]?ai
    weights(?:and|_and_)?biases hcp capella softlayer aikido
"""
_BENIGN = re.compile(
    rb"(?:^|[^a-z])(?:sha[0-9]*|commit|hash|digest|md5|etag|checksum|rev|revision|version|uuid|guid"
    rb"|tag|ref|branch|fingerprint|path|file|url|uri|name|public|schema|sort|primary|foreign|index"
    rb"|partition|digest|image|id)(?:$|[^a-z])",
    re.IGNORECASE,
)
_BENIGN_END = re.compile(rb"(?i)(?:^|[_. -])(?:id|ids|at|type|class|name|count|len)\W*$")
_NOTHING = re.compile(
    rb"(?i)(?:none|null|nil|true|false|undefined|self|str|string|bytes|int|bool|optional|any|object"
    rb"|x{3,}|\*{3,}|\.{3,}|example|changeme|required|redacted|password|passwd|secret|token|value"
    rb"|todo|user|username|unknown|default|empty|hidden|masked|yes|no|not|the|is|was|a|of|to|and|or"
    rb"|for|in|on|with|if|from|that|has|must|can|cannot|will|may|are|this|it|as|by|be|option|flag"
    rb"|args?|kwargs|env|input|prompt|file|stdin|stdout|key)\W*"
)
_TURNS = re.compile(rb"[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z]|[A-Z][a-z]")
_IDENTIFIER = re.compile(rb"[A-Za-z_$][A-Za-z0-9_]*(?:(?:\.|->|::|\?\.)[A-Za-z_][A-Za-z0-9_]*)*")
_HEX = re.compile(rb"(?:0x)?[0-9a-fA-F-]+")
_PLACE = re.compile(rb"\$|<|\{|%[(sdr{]|\[|\(|\.\.|/|~/|\\|@|\*|&")
_CAMEL = re.compile(
    rb"[_a-z.:]*[0-9]{0,3}[_.:]?(?:[A-Z]{1,6}[0-9]{0,3}[a-z]*[aeiouy][a-z]+[0-9]{0,3}[_.:-]?)+"
    rb"[A-Z]{0,4}[0-9]{0,2}[a-z]?"
    rb"|[a-z]{2,}[0-9]{0,4}(?:[._:-][a-z]+[0-9]{0,4}[a-z]?|[._:-][0-9]{1,4})+"
)
_ENV = re.compile(rb"[A-Z0-9_]*[A-Z][A-Z0-9_]*")
_WORDS = re.compile(rb"[A-Za-z]+(?:[-_./ ][A-Za-z]+)*[0-9]{0,2}[.:!?]*")


class Named(NamedTuple):
    """A name, a sign and a value."""

    name: bytes
    """From the word that tells up to the sign."""
    sign: bytes
    tight: bool
    """No space around the sign."""
    value: bytes
    quoted: bool
    after: bytes
    """What comes next."""
    strength: int
    """3 for a password, 2 for a token, 1 for a key or the name of a provider."""


def is_secret(one: Named) -> bool:
    value = one.value
    if not value or _NOTHING.fullmatch(value) or _PLACE.match(value):
        return False
    if random(value):
        return _fits(one)
    if one.strength == 3 and chancy(value) and one.sign != b",":
        return True
    if one.strength < 2 or one.sign not in (b"=", b":", b"=>", b":=", b"::", b"::=", b" "):
        return False
    if _ENV.fullmatch(one.name) and one.tight and one.sign == b"=":
        return not _call(one)
    if one.sign == b" ":
        return one.strength == 3 or chancy(value)
    if chancy(value):
        return True
    return one.strength == 3 and _typed(one)


def is_benign(name: bytes) -> bool:
    """Whether it names what only looks like a secret: a hash, a version, a path."""
    return bool(_BENIGN.search(name) or _BENIGN_END.search(name))


def _fits(one: Named) -> bool:
    if one.strength >= 2:
        return not (one.strength == 2 and _BENIGN_END.search(one.name))
    return not is_benign(one.name)


def _call(one: Named) -> bool:
    """Whether it is an expression of a program rather than a value."""
    return one.after[:1] in (b"(", b"[", b",", b")") and bool(_IDENTIFIER.fullmatch(one.value))


def _typed(one: Named) -> bool:
    """Whether a person may have chosen it as a password: no sentence, no word of a program."""
    value = one.value
    if b" " in value or len(value) < 4:
        return False
    if _WORDS.fullmatch(value):
        if len(value) >= 16 and value.isalpha():
            return True
        # A word is one only where a program would not write one.
        return one.tight and not one.quoted and one.after[:1] in (b"", b" ", b"&", b"\n", b"'", b'"')
    if _IDENTIFIER.fullmatch(value):
        return _digits(value) > 0 and not _call(one)
    return True


def random(value: bytes) -> bool:
    """Whether it was drawn by chance, as keys are: long, and letters and digits change often."""
    size = len(value) - value.count(b"-") - value.count(b".") - value.count(b"_")
    if size < 14 or b" " in value:
        return False
    if _CAMEL.fullmatch(value):
        return False
    turns = len(_TURNS.findall(value))
    digits = _digits(value)
    if digits >= 2:
        return turns * 11 >= size or digits == size >= 15
    return turns * 4 >= size


def _digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, b"0123456789"))


def chancy(value: bytes) -> bool:
    """The same of something shorter; sure enough where a name tells."""
    if len(value) < 8 or b" " in value or _CAMEL.fullmatch(value):
        return False
    return len(_TURNS.findall(value)) * 5 >= len(value)


_IDS = frozenset(
    b"""sha sha1 sha224 sha256 sha384 sha512 md5 blake2b crc h1 msg toolu srvtoolu chatcmpl cmpl call req
    resp run thread asst file batch evt cus sub pi in cs ch price prod acct session sess gen item vs
    step ft ftjob org user proj id build job task trace span img image etag upload rs fc commit rev
    ref tree blob tag v release branch test tests class data node key_id request response event
    conv conversation container vol snap subnet sg eni ami i vpc arn doc page part chunk block
    fig fn func method lib libs module pkg package http https www bootstrap
    """.split()
)
_TELLING = frozenset(b"sk pk rk key api apikey token secret pat access auth bearer db m0 cs live".split())
_PUBLIC_ID = re.compile(rb"01[A-Za-z0-9]{20,26}|[0-9A-HJKMNP-TV-Z]{26}")
"""Numbered names that stand in every log; the second are ULIDs."""
_PREFIXED = re.compile(rb"([A-Za-z][A-Za-z0-9]{0,15})((?:[_-][a-z0-9]{1,12}){0,3})[_-]([A-Za-z0-9_+/-]{16,})={0,2}")


def prefixed(run: bytes) -> bool:
    """Whether a run is the token of an issuer we do not know: a short name, then chance."""
    found = _PREFIXED.fullmatch(run)
    if not found or found[1].lower() in _IDS:
        return False
    rest = found[3]
    if _PUBLIC_ID.fullmatch(rest) or _CAMEL.fullmatch(rest):
        return False
    turns = len(_TURNS.findall(rest))
    digits = _digits(rest)
    telling = found[1].lower() in _TELLING
    if _HEX.fullmatch(rest):
        return telling and len(rest) >= 24 and digits >= 4 and b"-" not in rest
    if not digits:
        return turns * 3 >= len(rest) >= 20
    if rest.lower() != rest and rest.upper() != rest:
        return turns * 9 >= len(rest) * 2
    return turns * 8 >= len(rest) and digits >= 3 and len(rest) >= 20
