"""What stands before a secret, and whether what follows is one.

`password=…`, `--token …`, `"api_key": "…"`, `STRIPE_KEY: …`: a name, a sign, a value.  How much a
value has to look like a secret depends on how surely the name means one: anything after `password`
that is not plainly a word of a program, but only something drawn by chance after `key`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.mask.chance import chancy, count_digits, drawn, random

STRONG = (
    r"pass(?:word|wd|phrase|code)|(?:db|key|user|auth)_?pass|pass\b|pwd|pw\b|secret"
    r"|contrase(?:n|\xc3\xb1)a|passwort|mot_de_passe"
)
MEDIUM = (
    r"token|api[_. -]?key|(?:access|private|account|signing|encryption|master|service|shared"
    r"|storage|session|license|auth|client|admin|deploy|webhook|database|db|priv|ssh|consumer|application"
    r"|app|sdk|user|server|root|live|test|prod|production|secure)[_. -]?key|credential|bearer"
    r"|cookie|_auth|jwt|[?&;]sig|x-amz-(?:signature|credential)"
)
PROVIDERS = r"""
    ably abuseipdb adafruit adobe aikido airtable aiven algolia alibaba aliyun amplitude
    anthropic anyscale apify apollo appcenter artifactory asana assemblyai atlassian auth0 aws
    axiom azure bamboo baseten beamer bitbucket bitly bitrise bittrex blackfire bluemix bluesky
    box braintree brave brevo browserstack buildkite bundle_ bunny \bbx canva capella cartesia
    cerebras chargebee checkout circleci civo clearbit clerk clickhouse clickup cloudant
    cloudflare cloudinary cloudsmith cockroach codacy codecov cohere coinbase configcat
    confluent consul contentful contribsys convex couchbase coveralls cursor customer.io
    data.gov databento databricks datadog datagov deepgram deepl deepseek deno devin
    digitalocean discord disqus docker doppler droneci dropbox duffel dynatrace easypost ebay
    elastic elevenlabs etherscan etsy eventbrite exoscale facebook fal falai fastly fathom fauna
    figma finicity finnhub firebase fireworks flickr flutterwave fly freshbooks freshdesk
    fullstory gemini gitea github gitlab gitter gladia gocardless google grafana greptile groq
    gumroad harness hashicorp hcp helicone heroku hetzner highnote honeycomb hubspot huggingface
    hunter ibm influx infomaniak infracost infura instagram instantly intercom ionos ipinfo
    ipstack iterable jfrog jira jumpcloud kaggle kagi klaviyo kraken kucoin langfuse lark
    larksuite launchdarkly lichess lighton linear linked[_-]?in linkedin linode litellm llama
    lob logz lokalise looker mailchimp mailgun mailjet mapbox mattermost maxmind mem0 meraki
    mercury mergify message-bird message[_-]?bird messagebird microsoft mid midtrans miro
    mistral mixpanel modal mongodb mux nango neon netlify new-york-times newrelic newyorktimes
    nexmo ngrok notion novu npm nuget nvidia nylas nytimes octopus okta ollama onelogin onfido
    openai openrouter openweather opsgenie optimizely outreach ovh owm paddle pagerduty paradigm
    paypal paystack pendo percy perplexity persona pinecone pinterest pipedrive plaid
    planetscale polymarket posthog postman postmark prefect private-ai private[_-]?ai privateai
    privy pubnub pulumi pusher pyowm pypi qdrant quay rabbitmq railway rainforest ramp rapidapi
    razorpay readme recurly redis render replicate resend retell rev.ai rollbar runpod
    salesforce samsara sanity scaleway segment sendbird sendgrid sendinblue sentry serpapi
    shippo shodan shopify sidekiq slack smartsheet snowflake snyk softlayer sonar sourcegraph
    splunk spotify square squarespace stability statuspage strava stripe stytch sumo sumologic
    supabase surge svix tableau tailscale tavily telegram telegrm telnyx temporal terraform
    tines todoist toggl travis trello tumblr twelvedata twilio twitch twitter typeform ubidots
    unsplash uploadcare upstage upstash vault vercel virustotal vonage voyage vultr wakatime
    wandb weatherstack weaviate webex webflow weights weights(?:and|_and_)?biases wistia wiz woo
    wordpress workato workos xendit yandex yelp youtube zapier zendesk zeplin zoho zoom zuplo
"""
ISSUERS = "|".join(
    # Short ones are in many words.
    rf"(?:\b|_){name}" if name.isalpha() and len(name) <= 5 else name
    for name in PROVIDERS.split()
)
_BENIGN = re.compile(
    rb"(?:^|[^a-z])(?:sha[0-9]*|commit|hash|digest|md5|etag|checksum|rev|revision|version|uuid|guid"
    rb"|tag|ref|branch|fingerprint|path|file|url|uri|name|public|schema|sort|primary|foreign|index"
    rb"|partition|digest|image|id)(?:$|[^a-z])",
    re.IGNORECASE,
)
_BENIGN_END = re.compile(rb"(?i)(?:^|[_. -])(?:id|ids|at|type|class|name|count|len)\W*$")
_NOTHING = frozenset(
    b"""
    none null nil true false undefined self str string bytes int bool optional any object
    example changeme required redacted password passwd secret token value
    todo user username unknown default empty hidden masked yes no not the is was a of to and or
    for in on with if from that has must can cannot will may are this it as by be option flag
    arg args kwargs env input prompt file stdin stdout key
    """.split()
)
_LEFT_BLANK = re.compile(rb"(?i)x{3,}|(?:\*{3,}|\.{3,})\W*")
_NO_WORD = re.sub(rb"\w", b"", bytes(range(256)))
_IDENTIFIER = re.compile(rb"[A-Za-z_$][A-Za-z0-9_]*(?:(?:\.|->|::|\?\.)[A-Za-z_][A-Za-z0-9_]*)*")
HEX = re.compile(rb"(?:0x)?[0-9a-fA-F-]+")
_PLACE = re.compile(rb"\$|<|\{|%[(sdr{]|\[|\(|\.\.|/|~/|\\|@|\*|&")
_FILLED = re.compile(rb"\$\W?[A-Za-z_{(]|\$$|[<{]|%[(sdr{]|\[|\.\.|~/|\\")
_SAID = re.compile(rb"[ \t](?!key|token|secret|auth|api|pass|access)[a-z]{2,}$")
_ENV = re.compile(rb"[A-Z0-9_]*[A-Z][A-Z0-9_]*")
_WORDS = re.compile(rb"[A-Za-z]+(?:[-_./ ][A-Za-z]+)*[.:!?]*")


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
    if not value or _is_nothing(value):
        return False
    if _PLACE.match(value) and not _only_begins_so(one):
        return False
    if random(value):
        return _fits(one)
    if one.strength == 3 and chancy(value) and (one.quoted or one.sign != b","):
        return True
    if one.sign == b">":  # an element of XML, or a comparison
        return one.strength == 3 and one.tight and one.after == b"<"
    if one.strength < 2 or one.sign not in (b"=", b":", b"=>", b":=", b"::", b"::=", b" "):
        return False
    if _ENV.fullmatch(one.name) and one.tight and one.sign == b"=":
        return not _call(one)
    if one.sign == b" ":
        return one.strength == 3 or chancy(value)
    if chancy(value):
        return True
    return one.strength == 3 and _typed(one)


def _is_nothing(value: bytes) -> bool:
    """Whether it is a word of programs and sentences, or stands for what was left out."""
    word = value.rstrip(_NO_WORD)
    return word.lower() in _NOTHING or _LEFT_BLANK.fullmatch(word or value) is not None


def _only_begins_so(one: Named) -> bool:
    """Whether it looks like a path or a place for a value and is none, as some keys do."""
    value = one.value
    if value[:1] == b"/":
        few = one.strength >= 2 and value.count(b"/") <= 4
        return few and count_digits(value) > 1 and drawn(value)
    return one.strength == 3 and one.quoted and not _FILLED.match(value) and chancy(value)


def is_benign(name: bytes) -> bool:
    """Whether it names what only looks like a secret: a hash, a version, a path."""
    return bool(_BENIGN.search(name) or _BENIGN_END.search(name))


def _fits(one: Named) -> bool:
    if one.strength >= 2:
        return not (one.strength == 2 and _BENIGN_END.search(one.name))
    # An id, at the end of what is said about something that is called like an issuer.
    if HEX.fullmatch(one.value) and _SAID.search(one.name):
        return False
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
        return (
            one.tight and not one.quoted and one.after[:1] in (b"", b" ", b"&", b"\n", b"'", b'"')
        )
    if _IDENTIFIER.fullmatch(value):
        return count_digits(value) > 0 and not _call(one)
    return True


_IDS = frozenset(
    b"""
    acct ami arn asst batch blake2b blob block bootstrap branch build call ch chatcmpl chunk
    class cmpl commit container conv conversation crc cs cus data doc eni etag event evt fc fig
    file fn ft ftjob func gen h1 http https i id image img in item job key_id lib libs md5
    method module msg node org package page part pi pkg price prod proj ref release req request
    resp response rev rs run sess session sg sha sha1 sha224 sha256 sha384 sha512 snap span
    srvtoolu step sub subnet tag task test tests thread toolu trace tree upload user v vol vpc
    vs www
    """.split()
)
_TELLING = frozenset(
    b"sk pk rk key api apikey token secret pat access auth bearer db m0 cs live".split()
)
_PUBLIC_ID = re.compile(rb"01[A-Za-z0-9]{20,26}|[0-9A-HJKMNP-TV-Z]{26}")
"""Numbered names that stand in every log; the second are ULIDs."""
_UUID = re.compile(rb"(?:^|[/_-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
"""At the end of the name of a thing, such as `claude-code/8c35adc1-…`."""
_PREFIXED = re.compile(
    rb"([A-Za-z][A-Za-z0-9]{0,15})((?:[_-](?:[a-z0-9]{1,12}|[A-Z]{1,4})){0,3})[_-]([A-Za-z0-9_+/-]{16,})={0,2}"
)


def prefixed(run: bytes) -> bool:
    """Whether a run is the token of an issuer we do not know: a short name, then chance."""
    if b"_" not in run[:17] and b"-" not in run[:17]:
        return False
    found = _PREFIXED.fullmatch(run)
    if not found or found[1].lower() in _IDS:
        return False
    rest = found[3]
    telling = found[1].lower() in _TELLING
    if b"/" in run and run.islower():
        return False  # a path
    if _PUBLIC_ID.fullmatch(rest) or (_UUID.search(rest) and not telling):
        return False
    if HEX.fullmatch(rest):
        return telling and len(rest) >= 24 and count_digits(rest) >= 4 and b"-" not in rest
    return drawn(rest)
